/**
 * Numbers as the page shows them.
 * @module
 */

/**
 * A probability with two decimals; very small and nearly certain ones are not rounded to 0 and 1.
 * @param {number} value
 * @returns {string}
 */
export function probability(value) {
  if (value > 0 && value < 0.005) return "<0.01";
  if (value < 1 && value > 0.995) return ">0.99";
  return value.toFixed(2);
}

/**
 * A log score with two decimals, or as many as told, and a true minus sign.
 * @param {number} value
 * @param {number} [decimals]
 * @returns {string}
 */
export function score(value, decimals = 2) {
  return (Object.is(Number(value.toFixed(decimals)), -0) ? 0 : value).toFixed(decimals).replace("-", "−");
}

/**
 * The same with a sign in front of positive scores too.
 * @param {number} value
 * @param {number} [decimals]
 * @returns {string}
 */
export function signed(value, decimals = 2) {
  return value > 0 ? `+${score(value, decimals)}` : score(value, decimals);
}

/**
 * A symbol as text that can be seen: spaces get a sign of their own.
 * @param {string} symbol
 * @returns {string}
 */
export function visible(symbol) {
  return symbol.replaceAll(" ", "␣");
}
