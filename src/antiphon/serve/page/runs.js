/**
 * What the server says about its runs.
 * @module
 */

/** @typedef {import("./pieces.js").Unit} Unit */
/** @typedef {import("./ranking.js").Parts} Parts */

/**
 * @typedef {object} Example
 * @property {string} [input]
 * @property {string} [features]
 * @property {string} [question]
 * @property {string[]} [sentences]
 */

/**
 * @typedef {object} Run
 * @property {string} name
 * @property {string} about what it maps to what, and how good it is
 * @property {string} kind
 * @property {"unidirectional" | "bidirectional" | null} encoder
 * @property {Record<"predict" | "score" | "align" | "lattice" | "stream" | "rank" | "explain" | "tokens", boolean>} can
 * @property {Unit} source_tokens
 * @property {boolean} reads_features
 * @property {string[]} features
 * @property {("greedy" | "beam")[]} policies
 * @property {number | null} margin of the beam policy; null if all outputs must agree
 * @property {"" | " "} join what stands between tokens of the output
 * @property {Parts | null} weights
 * @property {Example[]} examples
 */

/** @typedef {"transduction" | "answers" | "language"} ViewName */

/**
 * The view that suits a run.
 * @param {Run} run
 * @returns {ViewName}
 */
export function viewOf({ can }) {
  if (can.rank) return "answers";
  return can.predict ? "transduction" : "language";
}

/**
 * What a run is, in a few words.
 * @param {Run} run
 * @returns {string}
 */
export function titleOf({ name, kind, can }) {
  return `${name}: ${kind.replaceAll("_", " ")}${can.stream ? ", streams" : ""}`;
}

/**
 * The policy of a run that streams: the wanted one, or the only one that it has.
 * @param {Run} run
 * @param {string} wanted
 * @returns {"greedy" | "beam"}
 */
export function policyOf({ policies }, wanted) {
  return policies.find((each) => each === wanted) ?? policies[0];
}
