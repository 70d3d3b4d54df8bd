/**
 * Where the cells of a lattice are drawn.
 * @module
 */

/** @typedef {{row: number, column: number}} Cell */
/** @typedef {{x: number, y: number}} Point */

/**
 * Sizes in CSS pixels; `left` and `top` are the fixed headers.
 * @typedef {object} Geometry
 * @property {number} rows
 * @property {number} columns
 * @property {number} left
 * @property {number} top
 * @property {number} cellWidth
 * @property {number} cellHeight
 */

const CELL_WIDTH = { least: 18, most: 148 };
const CELL_HEIGHT = { least: 20, most: 56 };
const LABEL_WIDTH = 132;
const LEAST_LEFT = 56;
const HEADER = 34;
const PADDING = 14;
const CELL_PADDING = 8;

/**
 * The geometry of a lattice: as large as fits, between limits; what does not fit is scrolled.
 * @param {{rows: number, columns: number}} count
 * @param {{row: number, column: number}} labels width of the widest label of each side
 * @param {{width: number, height: number}} available
 * @returns {Geometry}
 */
export function layOut({ rows, columns }, labels, { width, height }) {
  const left = clamp(labels.row + 2 * PADDING, LEAST_LEFT, LABEL_WIDTH + 2 * PADDING);
  const least = Math.max(CELL_WIDTH.least, Math.min(labels.column, LABEL_WIDTH) + CELL_PADDING);
  return {
    rows,
    columns,
    left,
    top: HEADER,
    cellWidth: clamp((width - left - 2) / Math.max(columns, 1), least, Math.max(least, CELL_WIDTH.most)),
    cellHeight: clamp((height - HEADER - 2) / Math.max(rows, 1), CELL_HEIGHT.least, CELL_HEIGHT.most),
  };
}

/**
 * Width and height of everything.
 * @param {Geometry} geometry
 * @returns {{width: number, height: number}}
 */
export function contentSize({ rows, columns, left, top, cellWidth, cellHeight }) {
  return { width: left + columns * cellWidth + 2, height: top + rows * cellHeight + 2 };
}

/**
 * The cell at a point of the content, or null.
 * @param {Geometry} geometry
 * @param {Point} point
 * @returns {Cell | null}
 */
export function cellAt({ rows, columns, left, top, cellWidth, cellHeight }, { x, y }) {
  const row = Math.floor((y - top) / cellHeight);
  const column = Math.floor((x - left) / cellWidth);
  return row >= 0 && column >= 0 && row < rows && column < columns ? { row, column } : null;
}

/**
 * First and one past the last index of the cells that a window of the content shows.
 * @param {number} start
 * @param {number} size
 * @param {number} cell
 * @param {number} count
 * @returns {[number, number]}
 */
export function visibleRange(start, size, cell, count) {
  return [Math.max(0, Math.floor(start / cell)), Math.min(count, Math.ceil((start + size) / cell))];
}

/**
 * The corners of a staircase: down along a boundary for every row read, to the right for every token written.
 * @param {number[]} rows the row in which each token is written
 * @param {Geometry} geometry
 * @param {number | null} lastRow the row in which the path ends, if it reads on after the last token
 * @returns {Point[]}
 */
export function staircase(rows, { left, top, cellWidth, cellHeight }, lastRow) {
  const middle = (/** @type {number} */ row) => top + (row + 0.5) * cellHeight;
  /** @type {Point[]} */
  const points = [{ x: left, y: middle(0) }];
  rows.forEach((row, column) => {
    points.push(
      { x: left + column * cellWidth, y: middle(row) },
      { x: left + (column + 1) * cellWidth, y: middle(row) },
    );
  });
  if (lastRow !== null) points.push({ x: left + rows.length * cellWidth, y: middle(lastRow) });
  return points;
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 * @returns {number}
 */
function clamp(value, least, most) {
  return Math.min(most, Math.max(least, value));
}

/**
 * Where the numbers of the explanation stand, as rows and columns with fractions: at a symbol, at a token, in the cell
 * in which the first token is written, and on the staircase; attention has none, so at the last token's largest weight.
 * A negative row or column is that of the labels.
 * @param {import("./lattice.js").Lattice} lattice
 * @param {Geometry} geometry
 * @returns {[number, number][]}
 */
export function badgePlaces({ rows, source, method }, { cellWidth }) {
  const last = rows.length - 1;
  /** @type {[number, number][]} */
  const labels = [
    [Math.min(1, source.length - 1) + 0.5, -1],
    [-1, 0.5 + Math.min(26, cellWidth / 2 - 9) / cellWidth],
  ];
  if (last < 0) return [...labels, [0.3, 0.15], [0.9, 0]];
  const stair = (rows[Math.max(0, last - 1)] + rows[last] + 1) / 2;
  return [...labels, [rows[0] + 0.25, 0.15], method === "attention" ? [rows[last] + 0.25, last + 0.15] : [stair, last]];
}
