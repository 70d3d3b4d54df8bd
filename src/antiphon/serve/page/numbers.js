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
 * A log score with two decimals and a true minus sign.
 * @param {number} value
 * @returns {string}
 */
export function score(value) {
  return (Object.is(Number(value.toFixed(2)), -0) ? 0 : value).toFixed(2).replace("-", "−");
}

/**
 * The same with a sign in front of positive scores too.
 * @param {number} value
 * @returns {string}
 */
export function signed(value) {
  return value > 0 ? `+${score(value)}` : score(value);
}

/**
 * A symbol as text that can be seen: spaces get a sign of their own.
 * @param {string} symbol
 * @returns {string}
 */
export function visible(symbol) {
  return symbol.replaceAll(" ", "␣");
}
