/**
 * The numbers of a lattice as a table, in place of the picture for those who ask, and always for screen readers.
 * @module
 */

import { element, fill } from "./dom.js";
import { probability, visible } from "./numbers.js";

/** @typedef {import("./lattice.js").Lattice} Lattice */

const MOST_CELLS = 2500;
/** @type {Record<string, string>} */
const SHOWN = {
  alignment: "probability that a token (column) is written when a symbol (row) is the last one read",
  attention: "attention that a symbol (row) gets while a token (column) is written",
};

export class LatticeTable {
  /**
   * @param {HTMLElement} figure
   * @param {string} label
   */
  constructor(figure, label) {
    this.figure = figure;
    this.label = label;
    this.host = element("div", { class: "lattice-table hidden", role: "region", "aria-label": `${label} as a table` });
    figure.append(this.host);
  }

  /**
   * Shows the table instead of the picture, or the picture again; whether the table is seen now.
   * @param {Lattice} lattice
   * @returns {boolean}
   */
  toggle(lattice) {
    const isSeen = this.figure.classList.toggle("as-table");
    this.host.classList.toggle("hidden", !isSeen);
    this.host.toggleAttribute("tabindex", isSeen);
    this.show(lattice);
    return isSeen;
  }

  /** @param {Lattice} lattice */
  show(lattice) {
    if (lattice.source.length * lattice.target.length > MOST_CELLS) {
      fill(
        this.host,
        element("p", { class: "hint" }, "Too large for a table; the arrow keys walk the picture cell by cell."),
      );
      return;
    }
    fill(
      this.host,
      element(
        "table",
        {},
        element("caption", {}, `${this.label}: ${SHOWN[lattice.method]}`),
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            element("td"),
            ...lattice.target.map((token) => element("th", { scope: "col" }, visible(token))),
          ),
        ),
        element("tbody", {}, ...lattice.source.map((symbol, row) => tableRow(lattice, symbol, row))),
      ),
    );
  }
}

/**
 * @param {Lattice} lattice
 * @param {string} symbol
 * @param {number} row
 * @returns {HTMLElement}
 */
function tableRow({ target, posterior, rows }, symbol, row) {
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, visible(symbol)),
    ...target.map((_, column) =>
      element("td", { class: rows[column] === row ? "is-path" : "" }, probability(posterior[row][column])),
    ),
  );
}
