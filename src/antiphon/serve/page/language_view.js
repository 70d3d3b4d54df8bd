/**
 * The view of language models: every token of a text with its probability.
 * @module
 */

import { ApiError } from "./api.js";
import { byId, element, fill } from "./dom.js";
import { latest } from "./latest.js";
import { probability, score, visible } from "./numbers.js";

/** @typedef {import("./app.js").Page} Page */
/** @typedef {import("./link.js").PageState} PageState */
/** @typedef {import("./runs.js").Run} Run */
/** @typedef {{token: string, probability: number, rank: number, next: [string, number][]}} ScoredToken */

const TOP = 6;

export class LanguageView {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.text = /** @type {HTMLInputElement} */ (byId("language-text"));
    this.error = byId("language-error");
    /** @type {Run[]} */
    this.runs = [];
    this.score = latest((state) => this.scoreNow(state));
    this.text.addEventListener("input", () => page.change({ text: this.text.value }));
    byId("read").addEventListener("submit", (event) => event.preventDefault());
  }

  /** @param {Run[]} runs */
  open(runs) {
    this.runs = runs;
    fill(byId("readings"));
    fill(byId("language-examples"), ...runs[0].examples.map((example) => this.exampleButton(example)));
  }

  close() {
    this.runs = [];
  }

  /** @param {Run} run */
  demonstrate(run) {
    const [example] = run.examples;
    if (example) this.page.change({ text: example.input ?? "", features: example.features ?? "" });
  }

  /** @param {PageState} state */
  update(state) {
    if (this.text.value !== state.text) this.text.value = state.text;
    this.score(state);
  }

  /** What the page asks of the first run. */
  request() {
    return requestOf(this.runs[0], this.page.state);
  }

  /** @param {PageState} state */
  async scoreNow(state) {
    const { runs } = this;
    this.error.textContent = "";
    if (!state.text.trim()) {
      fill(byId("readings"));
      return;
    }
    try {
      const isWanted = () => this.runs === runs && this.page.state.text === state.text;
      const answers = await Promise.all(runs.map((run) => this.page.api.ask(requestOf(run, state), isWanted)));
      if (isWanted()) fill(byId("readings"), ...answers.map((answer, index) => reading(runs[index], answer.texts[0])));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(byId("readings"));
      this.error.textContent = error.message;
    }
  }

  /**
   * @param {import("./runs.js").Example} example
   * @returns {HTMLElement}
   */
  exampleButton({ input = "", features = "" }) {
    return element(
      "button",
      { type: "button", class: "chip", on: { click: () => this.page.change({ text: input, features }) } },
      input,
    );
  }
}

/**
 * @param {Run} run
 * @param {PageState} state
 */
function requestOf(run, { text, features }) {
  return { path: "api/tokens", body: { run: run.name, texts: [text.trim()], features, top: TOP } };
}

/**
 * @param {Run} run
 * @param {{log_probability: number, perplexity: number, tokens: ScoredToken[]}} text
 * @returns {HTMLElement}
 */
function reading(run, text) {
  const summary = `log probability ${score(text.log_probability)}, perplexity ${text.perplexity.toFixed(1)} per token`;
  return element(
    "section",
    { class: "reading", "aria-label": `Token probabilities of ${run.name}` },
    element("h2", {}, run.name, element("span", { class: "facts" }, summary)),
    element("ol", { class: "scored" }, ...text.tokens.map(scoredToken)),
    element(
      "p",
      { class: "hint" },
      "The higher the bar, the better the model expected the token; below it, what it expected most.",
    ),
  );
}

/**
 * @param {ScoredToken} token
 * @returns {HTMLElement}
 */
function scoredToken({ token, probability: chance, next }) {
  return element(
    "li",
    {},
    element(
      "span",
      { class: "column", "aria-hidden": "true" },
      element("span", { style: { height: `${100 * chance}%` } }),
    ),
    element("span", { class: "symbol" }, visible(token)),
    element("span", { class: "number" }, probability(chance)),
    element(
      "ol",
      { class: "expected", "aria-label": "most probable here" },
      ...next.map(([each, value]) =>
        element(
          "li",
          { class: each === token ? "is-chosen" : "" },
          element("span", {}, visible(each)),
          element("span", { class: "number" }, probability(value)),
        ),
      ),
    ),
  );
}
