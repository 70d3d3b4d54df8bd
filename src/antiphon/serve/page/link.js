/**
 * The state of the page as the part of its address after `#`, and back.
 * @module
 */

/**
 * What a link holds; everything else follows from it.
 * @typedef {object} PageState
 * @property {string} run
 * @property {string} compare name of the second run; empty for none
 * @property {string} text
 * @property {boolean} ended
 * @property {string} features
 * @property {"greedy" | "beam"} policy
 * @property {number} bias of the greedy policy
 * @property {number | null} margin of the beam policy; null for that of the run
 * @property {string[]} prefix tokens that the output is forced to begin with
 * @property {number[]} weights of a noisy channel, if they were moved
 * @property {string} question
 * @property {string[]} sentences
 */

/** @type {Readonly<PageState>} */
export const EMPTY_STATE = {
  run: "",
  compare: "",
  text: "",
  ended: false,
  features: "",
  policy: "beam",
  bias: 0,
  margin: null,
  prefix: [],
  weights: [],
  question: "",
  sentences: [],
};

/**
 * The address part of a state; what is as in the empty state is left out.
 * @param {PageState} state
 * @returns {string}
 */
export function toHash(state) {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (Array.isArray(value)) value.forEach((each) => fields.append(name, String(each)));
    else if (value !== EMPTY_STATE[/** @type {keyof PageState} */ (name)]) fields.set(name, String(value));
  }
  return `#${fields}`;
}

/**
 * The state of an address part; what is missing or makes no sense is as in the empty state.
 * @param {string} hash
 * @returns {PageState}
 */
export function fromHash(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const text = (/** @type {string} */ name) => fields.get(name) ?? "";
  const numbers = fields.getAll("weights").map(Number);
  const margin = Number(text("margin") || NaN);
  return {
    run: text("run"),
    compare: text("compare"),
    text: text("text"),
    ended: text("ended") === "true",
    features: text("features"),
    policy: text("policy") === "greedy" ? "greedy" : "beam",
    bias: Number(text("bias")) || 0,
    margin: margin >= 0 ? margin : null,
    prefix: fields.getAll("prefix"),
    weights: numbers.length === 4 && numbers.every(Number.isFinite) ? numbers : [],
    question: text("question"),
    sentences: fields.getAll("sentences"),
  };
}
