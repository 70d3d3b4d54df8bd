/**
 * What is known of the cell under the cursor: write or read on, and the most probable next tokens.
 * @module
 */

import { element, fill } from "./dom.js";
import { probability, visible } from "./numbers.js";

/** @typedef {import("./geometry.js").Cell} Cell */
/** @typedef {import("./lattice.js").Lattice} Lattice */
/** @typedef {import("./lattice.js").NextToken} NextToken */

export class CursorPanel {
  /**
   * @param {HTMLElement} host
   * @param {(column: number, token: string) => void} onForce called when a next token is chosen
   */
  constructor(host, onForce) {
    this.host = host;
    this.onForce = onForce;
    this.key = "";
  }

  /**
   * @param {Lattice} lattice
   * @param {Cell | null} cell
   */
  show(lattice, cell) {
    const key = JSON.stringify([cell, cell && [lattice.target, lattice.source[cell.row], lattice.posterior[cell.row]]]);
    if (key === this.key) return;
    this.key = key;
    if (!cell)
      fill(this.host, element("p", { class: "hint" }, "Point at a cell of the lattice to see its probabilities."));
    else fill(this.host, ...this.describe(lattice, cell));
  }

  /**
   * @param {Lattice} lattice
   * @param {Cell} cell
   * @returns {HTMLElement[]}
   */
  describe(lattice, cell) {
    const token = lattice.target[cell.column];
    const place = element(
      "h2",
      {},
      "Row ",
      element("b", {}, visible(lattice.source[cell.row])),
      token === undefined ? ", next token" : ", before ",
      token !== undefined && element("b", {}, visible(token)),
    );
    return [
      place,
      element("p", { class: "posterior" }, posteriorSentence(lattice, cell)),
      ...moves(lattice, cell),
      ...this.nextTokens(lattice, cell.column),
    ];
  }

  /**
   * @param {Lattice} lattice
   * @param {number} column
   * @returns {HTMLElement[]}
   */
  nextTokens(lattice, column) {
    const tokens = lattice.next?.[column];
    if (!tokens) return [];
    return [
      element(
        "div",
        { class: "next-head" },
        element("h3", {}, "Next token"),
        element("span", {}, "all alignments"),
        element("span", {}, "best path"),
      ),
      element("ol", { class: "next" }, ...tokens.map((each) => this.nextToken(each, column, lattice.target[column]))),
      element("p", { class: "hint" }, "Click a token to force it."),
    ];
  }

  /**
   * @param {NextToken} each
   * @param {number} column
   * @param {string | undefined} chosen
   * @returns {HTMLElement}
   */
  nextToken({ token, summed, bestPath }, column, chosen) {
    const onPath = bestPath === null ? "–" : probability(bestPath);
    return element(
      "li",
      {},
      element(
        "button",
        {
          type: "button",
          class: token === chosen ? "next-token is-chosen" : "next-token",
          "aria-label": `Force ${visible(token)}: ${probability(summed)} over all alignments, ${onPath} on the best path`,
          on: { click: () => this.onForce(column, token) },
        },
        element("span", { class: "symbol" }, visible(token)),
        element(
          "span",
          { class: "bar" },
          element("span", { class: "bar-fill", style: { width: percent(summed) } }),
          bestPath !== null && element("span", { class: "bar-mark", style: { left: percent(bestPath) } }),
        ),
        element("span", { class: "number" }, probability(summed)),
        element("span", { class: "number is-muted" }, onPath),
      ),
    );
  }
}

/**
 * The cell in one sentence, for screen readers.
 * @param {Lattice} lattice
 * @param {Cell} cell
 * @returns {string}
 */
export function cellSentence(lattice, cell) {
  const token = lattice.target[cell.column];
  const parts = [
    `Row ${visible(lattice.source[cell.row])}, ${token === undefined ? "next token" : `token ${visible(token)}`}`,
  ];
  const posterior = lattice.posterior[cell.row][cell.column];
  if (posterior !== undefined) parts.push(`posterior ${probability(posterior)}`);
  const write = lattice.emit?.[cell.row]?.[cell.column];
  if (write !== undefined) parts.push(`write ${probability(write)}, read on ${probability(1 - write)}`);
  if (lattice.rows[cell.column] === cell.row) parts.push("on the best path");
  return parts.join(", ");
}

/**
 * @param {Lattice} lattice
 * @param {Cell} cell
 * @returns {string}
 */
function posteriorSentence(lattice, { row, column }) {
  const token = lattice.target[column];
  if (token === undefined) return `What may be written after reading ${visible(lattice.source[row])}.`;
  const value = probability(lattice.posterior[row][column]);
  if (lattice.method === "attention") return `Attention weight of ${visible(lattice.source[row])}: ${value}.`;
  return `${visible(token)} is written here with posterior ${value}.`;
}

/**
 * Write and read on, as numbers and as one divided bar.
 * @param {Lattice} lattice
 * @param {Cell} cell
 * @returns {HTMLElement[]}
 */
function moves(lattice, { row, column }) {
  const write = lattice.emit?.[row]?.[column];
  if (write === undefined) return [];
  return [
    element(
      "dl",
      { class: "moves" },
      element("div", {}, element("dt", {}, "write"), element("dd", {}, probability(write))),
      element("div", {}, element("dt", {}, "read on"), element("dd", {}, probability(1 - write))),
    ),
    element(
      "div",
      { class: "moves-bar", "aria-hidden": "true" },
      element("span", { style: { width: percent(write) } }),
    ),
  ];
}

/**
 * @param {number} part
 * @returns {string}
 */
function percent(part) {
  return `${(100 * Math.min(1, Math.max(0, part))).toFixed(1)}%`;
}
