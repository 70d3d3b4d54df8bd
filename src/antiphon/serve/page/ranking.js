/**
 * Candidates of a noisy channel, ranked by weighted parts.
 * @module
 */

import { score, signed } from "./numbers.js";

/** @typedef {"direct" | "channel" | "language_model" | "length"} Part */
/** @typedef {Record<Part, number>} Parts */

/** @type {[Part, string, string][]} key, heading and name in a sentence */
export const PARTS = [
  ["direct", "direct", "the direct model"],
  ["channel", "channel", "the channel"],
  ["language_model", "language", "the language model"],
  ["length", "length", "the length"],
];

/**
 * The weighted sum of the parts.
 * @param {Parts} parts
 * @param {Parts} weights
 * @returns {number}
 */
export function objective(parts, weights) {
  return PARTS.reduce((sum, [part]) => sum + contribution(parts, weights, part), 0);
}

/**
 * What one part adds to the objective.
 * @param {Parts} parts
 * @param {Parts} weights
 * @param {Part} part
 * @returns {number}
 */
export function contribution(parts, weights, part) {
  return weights[part] ? weights[part] * parts[part] : 0;
}

/**
 * The candidates, the best under these weights first; ties keep their order.
 * @template {{parts: Parts}} T
 * @param {T[]} candidates
 * @param {Parts} weights
 * @returns {T[]}
 */
export function rank(candidates, weights) {
  return [...candidates].sort((one, other) => objective(other.parts, weights) - objective(one.parts, weights));
}

/**
 * A sentence that says by how much the first candidate wins, and which part decides.
 * @param {{text: string, parts: Parts}[]} ranked
 * @param {Parts} weights
 * @returns {string}
 */
export function verdict(ranked, weights) {
  if (ranked.length < 2) return "";
  const [first, second] = ranked;
  const leads = PARTS.map(([part, , name]) => ({
    name,
    lead: contribution(first.parts, weights, part) - contribution(second.parts, weights, part),
  }));
  const total = leads.reduce((sum, { lead }) => sum + lead, 0);
  if (total < 0.005) return `${first.text} and ${second.text} are level.`;
  leads.sort((one, other) => other.lead - one.lead);
  const best = leads[0];
  const worst = leads[leads.length - 1];
  const against = worst.lead < -0.005 ? `, against ${worst.name} (${signed(worst.lead)})` : "";
  return `${first.text} wins by ${score(total)} over ${second.text}: ${best.name} decides (${signed(best.lead)})${against}.`;
}
