/**
 * Drawing of a lattice on a canvas: only what the window shows.
 * @module
 */

import { shadeOf } from "./colours.js";
import { badgePlaces, staircase, visibleRange } from "./geometry.js";
import { visible } from "./numbers.js";

/** @typedef {import("./colours.js").Colours} Colours */
/** @typedef {import("./geometry.js").Geometry} Geometry */
/** @typedef {import("./geometry.js").Cell} Cell */
/** @typedef {import("./geometry.js").Point} Point */
/** @typedef {import("./lattice.js").Lattice} Lattice */

/**
 * Everything that a picture shows.
 * @typedef {object} Scene
 * @property {Lattice} lattice
 * @property {Geometry} geometry
 * @property {Colours} colours
 * @property {{x: number, y: number, width: number, height: number}} view
 * @property {Cell | null} cursor
 * @property {boolean} isExplained whether numbered badges point at what the explanation names
 * @property {(row: number) => number} rowAge how long a row has been there, from 0 (new) to 1
 * @property {(column: number) => number} columnAge
 */

export const LABEL_FONT = '500 14px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const VALUE_FONT = '11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
const TOKEN_FONT = '600 15px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const SMALL_TOKEN_FONT = TOKEN_FONT.replace("15px", "12px");
const DARK = 0.4;
const PENDING = 0.5;

/**
 * Draws the scene.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
export function paint(context, scene) {
  const { view, colours, lattice } = scene;
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, view.width, view.height);
  if (!lattice.source.length) return;
  context.save();
  context.translate(-view.x, -view.y);
  paintCells(context, scene);
  if (lattice.method === "alignment") paintPaths(context, scene);
  paintTokens(context, scene);
  paintCursor(context, scene);
  context.restore();
  paintHeaders(context, scene);
  if (scene.isExplained) paintBadges(context, scene);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function paintCells(context, scene) {
  const { lattice, geometry, colours } = scene;
  const { left, top, cellWidth, cellHeight } = geometry;
  const [rows, columns] = visibleCells(scene);
  const gap = cellWidth > 26 ? 2 : 1;
  for (let row = rows[0]; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++) {
      const value = column < lattice.target.length ? lattice.posterior[row][column] : undefined;
      const box = [
        left + column * cellWidth + gap / 2,
        top + row * cellHeight + gap / 2,
        cellWidth - gap,
        cellHeight - gap,
      ];
      context.globalAlpha = opacity(scene, column);
      context.fillStyle = value === undefined ? colours.paper : shadeOf(colours, value);
      fillRound(context, box, gap > 1 ? 3 : 0);
      if (value === undefined) strokeOpen(context, box, colours);
    }
    paintGlow(context, scene, row);
  }
  context.globalAlpha = 1;
}

/**
 * New columns fade in, and those that may still change stay pale.
 * @param {Scene} scene
 * @param {number} column
 * @returns {number}
 */
function opacity({ lattice, columnAge }, column) {
  const isPending = column >= lattice.decided && column < lattice.target.length;
  return columnAge(column) * (isPending ? PENDING : 1);
}

/**
 * A cell of the column that is not written yet.
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} box
 * @param {Colours} colours
 */
function strokeOpen(context, [x, y, width, height], colours) {
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  context.setLineDash([]);
}

/**
 * The light on a row that has just been read.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {number} row
 */
function paintGlow(context, { geometry, colours, rowAge }, row) {
  const { left, top, cellWidth, cellHeight, columns } = geometry;
  const light = 1 - rowAge(row);
  if (light <= 0) return;
  context.globalAlpha = light;
  context.fillStyle = colours.glow;
  fillRound(context, [left, top + row * cellHeight, columns * cellWidth, cellHeight], 4);
}

/**
 * The most probable alignment as a solid staircase, what the policy did as a dotted one.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function paintPaths(context, { lattice, geometry, colours }) {
  const lastRow = lattice.complete ? null : lattice.source.length - 1;
  const best = staircase(lattice.rows, geometry, lastRow);
  strokeLine(context, best, { colour: colours.paper, width: 6, dash: [] });
  strokeLine(context, best, { colour: colours.path, width: 2.5, dash: [] });
  const { writtenAt } = lattice;
  if (writtenAt?.some((row, column) => row !== lattice.rows[column])) {
    const written = staircase(writtenAt, geometry, lastRow);
    strokeLine(context, written, { colour: colours.paper, width: 5, dash: [] });
    strokeLine(context, written, { colour: colours.ink, width: 2.5, dash: [0.1, 5] });
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Point[]} points
 * @param {{colour: string, width: number, dash: number[]}} style
 */
function strokeLine(context, points, { colour, width, dash }) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.lineCap = "round";
  context.setLineDash(dash);
  context.beginPath();
  points.forEach(({ x, y }, index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
  context.setLineDash([]);
}

/**
 * Every token in the cell in which the best path writes it, and posteriors where there is room.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function paintTokens(context, scene) {
  const { lattice, geometry, colours } = scene;
  const { left, top, cellWidth, cellHeight } = geometry;
  const hasRoom = cellWidth >= 44 && cellHeight >= 30;
  const [rows, columns] = visibleCells(scene);
  context.textAlign = "center";
  for (let column = columns[0]; column < Math.min(columns[1], lattice.target.length); column++) {
    context.globalAlpha = opacity(scene, column);
    for (let row = rows[0]; row < rows[1]; row++) {
      const value = lattice.posterior[row][column];
      const isWritten = lattice.rows[column] === row;
      const middle = { x: left + (column + 0.5) * cellWidth, y: top + (row + 0.5) * cellHeight };
      if (isWritten) paintToken(context, scene, middle, column);
      else if (hasRoom && value >= 0.005) {
        context.font = VALUE_FONT;
        context.fillStyle = value > DARK ? colours.onShade : colours.ink;
        context.fillText(value.toFixed(2).replace(/^0/, ""), middle.x, middle.y + 4);
      }
    }
  }
  context.globalAlpha = 1;
}

/**
 * The token on the staircase, on a label that interrupts the line.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Point} middle
 * @param {number} column
 */
function paintToken(context, { lattice, geometry, colours }, middle, column) {
  if (geometry.cellWidth < 26) return;
  const token = visible(lattice.target[column]);
  context.font = TOKEN_FONT;
  if (context.measureText(token).width > geometry.cellWidth - 16) context.font = SMALL_TOKEN_FONT;
  const text = fitted(context, token, geometry.cellWidth - 8);
  const width = Math.min(context.measureText(text).width + 12, geometry.cellWidth - 4);
  const height = Math.min(24, geometry.cellHeight - 4);
  context.fillStyle = colours.path;
  fillRound(context, [middle.x - width / 2, middle.y - height / 2, width, height], height / 2);
  context.fillStyle = colours.onPath;
  context.fillText(text, middle.x, middle.y + 5);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function paintCursor(context, { cursor, geometry, colours }) {
  if (!cursor) return;
  const { left, top, cellWidth, cellHeight } = geometry;
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  context.strokeRect(
    left + cursor.column * cellWidth + 1,
    top + cursor.row * cellHeight + 1,
    cellWidth - 2,
    cellHeight - 2,
  );
}

/**
 * The labels of rows and columns, which stay while the cells scroll under them.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function paintHeaders(context, scene) {
  const { lattice, geometry, colours, view, cursor } = scene;
  const { left, top, cellWidth, cellHeight } = geometry;
  const [rows, columns] = visibleCells(scene);
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, view.width, top - 2);
  context.fillRect(0, 0, left - 2, view.height);
  context.font = LABEL_FONT;
  context.textAlign = "center";
  for (let column = columns[0]; column < columns[1]; column++) {
    const x = left + (column + 0.5) * cellWidth - view.x;
    if (x < left) continue;
    context.fillStyle = cursor?.column === column ? colours.ink : colours.muted;
    const label = column < lattice.target.length ? visible(lattice.target[column]) : "…";
    context.fillText(fitted(context, label, cellWidth - 4), x, top - 12);
  }
  context.textAlign = "right";
  for (let row = rows[0]; row < rows[1]; row++) {
    const y = top + (row + 0.5) * cellHeight - view.y;
    if (y < top) continue;
    context.fillStyle = cursor?.row === row || scene.rowAge(row) < 1 ? colours.ink : colours.muted;
    context.fillText(fitted(context, visible(lattice.source[row]), left - 20), left - 12, y + 5);
  }
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, left - 2, top - 2);
}

/**
 * Numbers that show which part of the picture each sentence of the explanation is about.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function paintBadges(context, { lattice, geometry, colours, view }) {
  context.font = `bold ${VALUE_FONT}`;
  context.textAlign = "center";
  badgePlaces(lattice, geometry).forEach(([row, column], index) => {
    const x = column < 0 ? 12 : geometry.left + column * geometry.cellWidth - view.x;
    const y = row < 0 ? geometry.top - 17 : geometry.top + row * geometry.cellHeight - view.y;
    context.fillStyle = colours.ink;
    context.beginPath();
    context.arc(x, y, 9, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = colours.paper;
    context.fillText(String(index + 1), x, y + 4);
  });
}

/**
 * The rows and columns that are in view.
 * @param {Scene} scene
 * @returns {[[number, number], [number, number]]}
 */
function visibleCells({ view, geometry }) {
  const { left, top, cellWidth, cellHeight, rows, columns } = geometry;
  return [
    visibleRange(view.y, view.height - top, cellHeight, rows),
    visibleRange(view.x, view.width - left, cellWidth, columns),
  ];
}

/**
 * The text, shortened until it fits.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 * @returns {string}
 */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} box
 * @param {number} radius
 */
function fillRound(context, [x, y, width, height], radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fill();
}
