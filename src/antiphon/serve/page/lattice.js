/**
 * The lattice: a picture that grows while the input is read, and can be walked by pointer and arrow keys.
 * @module
 */

import { readColours } from "./colours.js";
import { element } from "./dom.js";
import { cellAt, contentSize, layOut } from "./geometry.js";
import { visible } from "./numbers.js";
import { LABEL_FONT, paint } from "./painter.js";

/** @typedef {import("./geometry.js").Cell} Cell */

/** @typedef {{token: string, summed: number, bestPath: number | null}} NextToken */

/**
 * Rows are source symbols, columns are tokens of the output; an output that goes on has one more column, still open.
 * @typedef {object} Lattice
 * @property {string[]} source
 * @property {string[]} target
 * @property {number[]} rows the row in which the best path writes each token
 * @property {number[][]} posterior
 * @property {number[][] | null} emit probability of writing, by row and column
 * @property {NextToken[][] | null} next by column
 * @property {boolean} complete
 * @property {number} decided how many tokens will not change
 * @property {string} method
 * @property {number[] | null} writtenAt the row in which the policy wrote each token
 */

/** @type {Lattice} */
export const EMPTY_LATTICE = {
  source: [],
  target: [],
  rows: [],
  posterior: [],
  emit: null,
  next: null,
  complete: false,
  decided: 0,
  method: "alignment",
  writtenAt: null,
};

const FADE = 180;
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

export class LatticePicture {
  /**
   * @param {HTMLElement} host gets the picture as its child
   * @param {string} label
   * @param {(cell: Cell | null, byKey: boolean) => void} onCursor
   */
  constructor(host, label, onCursor) {
    this.onCursor = onCursor;
    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { "aria-hidden": "true" }));
    this.spacer = element("div", { class: "lattice-size" });
    this.scroller = element(
      "div",
      {
        class: "lattice",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "lattice",
        "aria-label": `${label}. Arrow keys move from cell to cell.`,
      },
      this.canvas,
      this.spacer,
    );
    host.append(this.scroller);
    this.lattice = EMPTY_LATTICE;
    this.isExplained = false;
    /** @type {Cell | null} */
    this.pinned = null;
    /** @type {Cell | null} */
    this.hovered = null;
    /** @type {number[]} */
    this.rowBorn = [];
    /** @type {number[]} */
    this.columnBorn = [];
    this.frame = 0;
    this.colours = readColours();
    /** @type {import("./geometry.js").Geometry | null} */
    this.geometry = null;
    this.listen();
  }

  /** The cell that is described: the one under the pointer, the chosen one, or the one of most interest. */
  get cursor() {
    return this.hovered ?? this.pinned ?? this.interesting();
  }

  /**
   * Shows a lattice; what is new in it lights up.
   * @param {Lattice} lattice
   */
  show(lattice) {
    const before = this.lattice;
    const goesOn = startsWith(lattice.source, before.source) && startsWith(lattice.target, before.target);
    const grows = goesOn && lattice.source.length + lattice.target.length > before.source.length + before.target.length;
    this.lattice = lattice;
    this.noteBirths(goesOn ? before : EMPTY_LATTICE);
    if (this.pinned && !this.contains(this.pinned)) this.pinned = null;
    if (this.hovered && !this.contains(this.hovered)) this.hovered = null;
    this.resize();
    if (lattice.complete && !(goesOn && before.complete)) this.reveal({ row: 0, column: 0 });
    else if (grows) this.reveal({ row: lattice.source.length - 1, column: this.columns - 1 });
    this.onCursor(this.cursor, false);
  }

  /** @param {boolean} isExplained */
  explain(isExplained) {
    this.isExplained = isExplained;
    this.redraw();
  }

  /** Reads the colours of the theme again. */
  refreshColours() {
    this.colours = readColours();
    this.redraw();
  }

  /** How many columns are drawn. */
  get columns() {
    return this.lattice.target.length + (this.lattice.complete || !this.lattice.source.length ? 0 : 1);
  }

  listen() {
    new ResizeObserver(() => this.resize()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.scroller.addEventListener("pointermove", (event) => this.hover(this.cellOf(event)));
    this.scroller.addEventListener("pointerleave", () => this.hover(null));
    this.scroller.addEventListener("click", (event) => this.pin(this.cellOf(event), false));
    this.scroller.addEventListener("keydown", (event) => this.walk(event));
  }

  /**
   * @param {MouseEvent} event
   * @returns {Cell | null}
   */
  cellOf(event) {
    if (!this.geometry) return null;
    const box = this.canvas.getBoundingClientRect();
    const inside = { x: event.clientX - box.left, y: event.clientY - box.top };
    if (inside.x < this.geometry.left || inside.y < this.geometry.top) return null;
    return cellAt(this.geometry, { x: inside.x + this.scroller.scrollLeft, y: inside.y + this.scroller.scrollTop });
  }

  /** @param {Cell | null} cell */
  hover(cell) {
    if (cell?.row === this.hovered?.row && cell?.column === this.hovered?.column) return;
    this.hovered = cell;
    this.onCursor(this.cursor, false);
    this.redraw();
  }

  /**
   * @param {Cell | null} cell
   * @param {boolean} byKey
   */
  pin(cell, byKey) {
    this.pinned = cell;
    this.onCursor(this.cursor, byKey);
    this.redraw();
  }

  /** @param {KeyboardEvent} event */
  walk(event) {
    const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
    const from = this.pinned ?? this.interesting();
    if (!step || !from) return;
    event.preventDefault();
    this.hovered = null;
    const to = { row: from.row + step[0], column: from.column + step[1] };
    if (!this.contains(to)) return;
    this.pin(to, true);
    this.reveal(to);
  }

  /**
   * The open cell of an output that goes on; otherwise the cell of the token that was least certain.
   * @returns {Cell | null}
   */
  interesting() {
    const { source, target, next, rows, complete } = this.lattice;
    if (!source.length) return null;
    if (!complete) return { row: source.length - 1, column: target.length };
    const chosen = target.map((token, column) => next?.[column].find((each) => each.token === token)?.summed ?? 1);
    const column = chosen.indexOf(Math.min(...chosen));
    return column < 0 ? null : { row: rows[column], column };
  }

  /**
   * @param {Cell} cell
   * @returns {boolean}
   */
  contains({ row, column }) {
    return row >= 0 && column >= 0 && row < this.lattice.source.length && column < this.columns;
  }

  /**
   * Scrolls as little as needed to see a cell.
   * @param {Cell} cell
   */
  reveal({ row, column }) {
    if (!this.geometry) return;
    const { cellWidth, cellHeight, left, top } = this.geometry;
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroller;
    this.scroller.scrollTo({
      left: nearest(scrollLeft, column * cellWidth, (column + 1) * cellWidth - (clientWidth - left)),
      top: nearest(scrollTop, row * cellHeight, (row + 1) * cellHeight - (clientHeight - top)),
    });
  }

  /** @param {Lattice} before */
  noteBirths(before) {
    const now = still.matches ? -Infinity : performance.now();
    this.rowBorn = born(this.rowBorn, before.source.length, this.lattice.source.length, now);
    this.columnBorn = born(this.columnBorn, before.target.length, this.columns, now);
  }

  /** Fits the canvas to its window and the cells to the canvas. */
  resize() {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    if (!width || !height) return;
    const context = this.context();
    context.font = LABEL_FONT;
    const widest = (/** @type {string[]} */ labels) =>
      Math.max(0, ...[...new Set(labels)].map((label) => context.measureText(visible(label)).width));
    const { source, target } = this.lattice;
    const count = { rows: source.length, columns: this.columns };
    this.geometry = layOut(count, { row: widest(source), column: widest(target) }, { width, height });
    const content = contentSize(this.geometry);
    this.spacer.style.width = `${content.width}px`;
    this.spacer.style.height = `${content.height}px`;
    const scale = window.devicePixelRatio;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.draw();
  }

  /** Draws before the next frame, once. */
  redraw() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.geometry) return;
    const { scrollLeft: x, scrollTop: y, clientWidth: width, clientHeight: height } = this.scroller;
    const now = performance.now();
    const context = this.context();
    context.setTransform(window.devicePixelRatio, 0, 0, window.devicePixelRatio, 0, 0);
    paint(context, {
      lattice: this.lattice,
      geometry: this.geometry,
      colours: this.colours,
      view: { x, y, width, height },
      cursor: this.cursor,
      isExplained: this.isExplained,
      rowAge: (row) => Math.min(1, (now - this.rowBorn[row]) / FADE),
      columnAge: (column) => Math.min(1, (now - this.columnBorn[column]) / FADE),
    });
    if (now - Math.max(-Infinity, ...this.rowBorn.slice(-1), ...this.columnBorn.slice(-2)) < FADE) this.redraw();
  }

  /** @returns {CanvasRenderingContext2D} */
  context() {
    return /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
  }
}

/**
 * When each row or column came: those before `kept` as known, later ones now.
 * @param {number[]} known
 * @param {number} kept
 * @param {number} count
 * @param {number} now
 * @returns {number[]}
 */
function born(known, kept, count, now) {
  return Array.from({ length: count }, (_, index) => (index < kept ? known[index] : now));
}

/**
 * @param {string[]} whole
 * @param {string[]} start
 * @returns {boolean}
 */
function startsWith(whole, start) {
  return start.every((symbol, index) => whole[index] === symbol);
}

/**
 * The position nearest to the present one that is at most `most` and at least `least`.
 * @param {number} present
 * @param {number} most
 * @param {number} least
 * @returns {number}
 */
function nearest(present, most, least) {
  return Math.max(Math.min(present, most), least);
}
