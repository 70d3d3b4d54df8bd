/**
 * Typed text as the pieces that a stream reads.
 * @module
 */

/** @typedef {"chars" | "words" | "sentencepiece"} Unit */

/**
 * The pieces that can be read: characters at once, words once a space follows them or the input has ended.
 * @param {string} text
 * @param {Unit} unit
 * @param {boolean} ended
 * @returns {string[]}
 */
export function piecesOf(text, unit, ended) {
  if (unit === "chars") return [...text.trimStart()];
  const whole = ended ? text : text.slice(0, text.search(/\S*$/));
  return whole.split(/\s+/).filter(Boolean);
}

/**
 * The text of some pieces.
 * @param {string[]} pieces
 * @param {Unit} unit
 * @returns {string}
 */
export function joinPieces(pieces, unit) {
  return pieces.join(unit === "chars" ? "" : " ");
}
