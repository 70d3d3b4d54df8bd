/**
 * Colours of the canvas, taken from the style sheet so that both themes are defined in one place.
 * @module
 */

const STEPS = 64;

/**
 * @typedef {object} Colours
 * @property {string} paper
 * @property {string} ink
 * @property {string} muted
 * @property {string} line
 * @property {string} path
 * @property {string} glow
 * @property {string} onShade text on a dark cell
 * @property {string} onPath text on a badge
 * @property {string[]} shades from posterior 0 to 1
 */

/**
 * The colours of the present theme.
 * @returns {Colours}
 */
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const low = channels(colour("shade-low"));
  const high = channels(colour("shade-high"));
  return {
    paper: colour("panel"),
    ink: colour("ink"),
    muted: colour("muted"),
    line: colour("line"),
    path: colour("path"),
    glow: colour("glow"),
    onShade: colour("on-shade"),
    onPath: colour("on-path"),
    shades: Array.from({ length: STEPS + 1 }, (_, step) => mix(low, high, step / STEPS)),
  };
}

/**
 * The shade of a posterior; small ones are lifted so that they can be told from zero.
 * @param {Colours} colours
 * @param {number} posterior
 * @returns {string}
 */
export function shadeOf(colours, posterior) {
  return colours.shades[Math.round(Math.sqrt(Math.min(1, Math.max(0, posterior))) * STEPS)];
}

/**
 * @param {string} colour as #rrggbb
 * @returns {number[]}
 */
function channels(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

/**
 * @param {number[]} low
 * @param {number[]} high
 * @param {number} part
 * @returns {string}
 */
function mix(low, high, part) {
  return `rgb(${low.map((value, index) => Math.round(value + (high[index] - value) * part)).join(" ")})`;
}
