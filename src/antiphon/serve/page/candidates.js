/**
 * The candidates for an input: a row each, with bars; those of a noisy channel are ranked again when weights move.
 * @module
 */

import { element, fill } from "./dom.js";
import { probability, score, visible } from "./numbers.js";
import { PARTS, contribution, objective, rank, verdict } from "./ranking.js";

/** @typedef {import("./ranking.js").Part} Part */
/** @typedef {import("./ranking.js").Parts} Parts */

/**
 * @typedef {object} Candidate
 * @property {string} text
 * @property {string[]} tokens
 * @property {number | null} probability
 * @property {number[]} [token_probabilities] of every token and of the end
 * @property {number} score
 * @property {Parts} parts
 */

/** @typedef {{text: string, reason: string}} Dropped */

const MOST_WEIGHT = 2;

export class CandidateList {
  /**
   * @param {HTMLElement} host
   * @param {string} label
   * @param {{onSelect: (candidate: Candidate) => void, onWeights: (weights: Parts) => void}} listeners
   */
  constructor(host, label, { onSelect, onWeights }) {
    this.onSelect = onSelect;
    this.onWeights = onWeights;
    this.head = element("thead");
    this.body = element("tbody");
    this.verdict = element("p", { class: "verdict", "aria-live": "polite" });
    this.weightsHost = element("div", { class: "weights" });
    this.heading = element("h2", {}, label);
    const table = element("table", { "aria-label": label }, this.head, this.body);
    const scroll = element(
      "div",
      { class: "candidate-scroll", tabindex: 0, role: "region", "aria-label": label },
      table,
    );
    fill(host, element("div", { class: "candidate-main" }, this.heading, scroll, this.verdict), this.weightsHost);
    /** @type {Candidate[]} */
    this.candidates = [];
    /** @type {Dropped[]} */
    this.dropped = [];
    /** @type {Parts | null} */
    this.weights = null;
    this.selected = "";
  }

  /**
   * Sets the weights of a noisy channel, which get sliders.
   * @param {Parts} weights
   * @param {Parts} own the run's own weights, to which the sliders return
   */
  setWeights(weights, own) {
    if (JSON.stringify(weights) === JSON.stringify(this.weights)) return;
    this.weights = { ...weights };
    fill(this.weightsHost, ...this.sliders(own));
    this.render();
  }

  /**
   * @param {Candidate[]} candidates
   * @param {Dropped[]} dropped
   * @param {string} selected the text that is shown in the lattice
   */
  show(candidates, dropped, selected) {
    this.candidates = candidates;
    this.dropped = dropped;
    this.selected = selected;
    this.render();
  }

  /**
   * Shows why there are no candidates yet.
   * @param {string} sentence
   */
  wait(sentence) {
    this.show([], [], "");
    fill(this.body, element("tr", {}, element("td", { class: "hint", colspan: "99" }, sentence)));
  }

  /**
   * Marks the candidate that is shown in the lattice.
   * @param {string} text
   */
  select(text) {
    this.selected = text;
    this.render();
  }

  render() {
    const ranked = this.weights ? rank(this.candidates, this.weights) : this.candidates;
    const hasSteps = this.candidates.some(({ token_probabilities }) => token_probabilities?.length);
    const heading = hasSteps ? ["token by token"] : [];
    const further = this.weights ? [...PARTS.map(([, name]) => name), "score"] : heading;
    const headings = [element("span", { class: "hidden" }, "rank"), "candidate", "probability", ...further];
    fill(this.head, element("tr", {}, ...headings.map((name) => element("th", { scope: "col" }, name))));
    fill(this.body, ...ranked.map((candidate, index) => this.row(candidate, index)), ...this.dropped.map(droppedRow));
    this.verdict.textContent = this.weights ? verdict(ranked, this.weights) : "";
  }

  /**
   * @param {Candidate} candidate
   * @param {number} index
   * @returns {HTMLElement}
   */
  row(candidate, index) {
    const isShown = candidate.text === this.selected;
    return element(
      "tr",
      { class: isShown ? "is-shown" : "" },
      element("td", { class: "rank" }, String(index + 1)),
      element(
        "td",
        { class: "output" },
        element(
          "button",
          {
            type: "button",
            dir: "auto",
            "aria-pressed": String(isShown),
            title: "Show its lattice",
            on: { click: () => this.onSelect(candidate) },
          },
          candidate.text || "(nothing)",
        ),
      ),
      element("td", { class: "chance" }, ...chance(candidate.probability)),
      ...(this.weights
        ? this.parts(candidate, this.weights)
        : [element("td", { class: "steps" }, ...steps(candidate))]),
    );
  }

  /**
   * The weighted parts, each as a bar to the right where it favours the candidate over the average of all.
   * @param {Candidate} candidate
   * @param {Parts} weights
   * @returns {HTMLElement[]}
   */
  parts(candidate, weights) {
    const cells = PARTS.map(([part, name]) => {
      const lead = contribution(candidate.parts, weights, part) - this.average(part, weights);
      return element(
        "td",
        { class: "part", "data-label": name },
        element(
          "span",
          { class: "number" },
          part === "length" ? String(candidate.parts[part]) : score(candidate.parts[part]),
        ),
        element("span", { class: "lead", "aria-hidden": "true" }, leadBar(lead / this.spread(weights))),
      );
    });
    return [
      ...cells,
      element("td", { class: "number", "data-label": "score" }, score(objective(candidate.parts, weights))),
    ];
  }

  /**
   * @param {Part} part
   * @param {Parts} weights
   * @returns {number}
   */
  average(part, weights) {
    const values = this.candidates.map(({ parts }) => contribution(parts, weights, part));
    return values.reduce((sum, value) => sum + value, 0) / values.length;
  }

  /**
   * The largest lead of any part, at least a little, so that bars of all parts share a scale.
   * @param {Parts} weights
   * @returns {number}
   */
  spread(weights) {
    const leads = PARTS.flatMap(([part]) =>
      this.candidates.map(({ parts }) => Math.abs(contribution(parts, weights, part) - this.average(part, weights))),
    );
    return Math.max(0.1, ...leads);
  }

  /**
   * @param {Parts} own
   * @returns {HTMLElement[]}
   */
  sliders(own) {
    const reset = element(
      "button",
      { type: "button", class: "quiet", on: { click: () => this.resetWeights(own) } },
      "Reset",
    );
    return [
      element("h2", {}, "Weights ", reset),
      ...PARTS.map(([part, name]) => this.slider(part, name)),
      element("p", { class: "hint" }, "Ranks the candidates found again; nothing is decoded."),
    ];
  }

  /**
   * @param {Part} part
   * @param {string} name
   * @returns {HTMLElement}
   */
  slider(part, name) {
    const value = this.weights?.[part] ?? 0;
    const shown = element("output", {}, value.toFixed(2));
    const input = /** @type {HTMLInputElement} */ (
      element("input", { type: "range", min: 0, max: Math.max(MOST_WEIGHT, value), step: 0.01, "data-part": part })
    );
    input.value = String(value);
    input.addEventListener("input", () => {
      shown.textContent = Number(input.value).toFixed(2);
      this.moveWeight(part, Number(input.value));
    });
    return element("label", { class: "weight" }, element("span", {}, name), input, shown);
  }

  /**
   * @param {Part} part
   * @param {number} value
   */
  moveWeight(part, value) {
    if (!this.weights) return;
    this.weights = { ...this.weights, [part]: value };
    this.render();
    this.onWeights(this.weights);
  }

  /** @param {Parts} own */
  resetWeights(own) {
    this.setWeights(own, own);
    this.onWeights(own);
  }
}

/**
 * @param {number | null} value
 * @returns {HTMLElement[]}
 */
function chance(value) {
  if (value === null) return [element("span", { class: "number" }, "none")];
  return [
    element(
      "span",
      { class: "bar", "aria-hidden": "true" },
      element("span", { class: "bar-fill", style: { width: `${100 * value}%` } }),
    ),
    element("span", { class: "number" }, probability(value)),
  ];
}

/**
 * Every token over a bar that is as long as the token is probable after those before it.
 * @param {Candidate} candidate
 * @returns {HTMLElement[]}
 */
function steps({ tokens, token_probabilities: probabilities = [] }) {
  return probabilities.map((value, index) =>
    element(
      "span",
      { class: "step", title: probability(value) },
      index < tokens.length ? visible(tokens[index]) : "</s>",
      element("span", { class: "bar" }, element("span", { class: "bar-fill", style: { width: `${100 * value}%` } })),
    ),
  );
}

/**
 * @param {Dropped} dropped
 * @returns {HTMLElement}
 */
function droppedRow({ text, reason }) {
  return element(
    "tr",
    { class: "is-dropped" },
    element("td"),
    element("td", { class: "output" }, element("bdi", {}, text)),
    element("td", { class: "reason", colspan: "99" }, reason),
  );
}

/**
 * A bar from the middle to the right for a lead, to the left for what is behind.
 * @param {number} part from -1 to 1
 * @returns {HTMLElement}
 */
function leadBar(part) {
  const width = 50 * Math.min(1, Math.abs(part));
  return element("span", {
    class: part >= 0 ? "lead-for" : "lead-against",
    style: { width: `${width}%`, left: `${part >= 0 ? 50 : 50 - width}%` },
  });
}
