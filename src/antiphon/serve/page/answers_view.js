/**
 * The view of answer selection: a question and sentences, ranked, their words coloured by attention.
 * @module
 */

import { ApiError } from "./api.js";
import { byId, element, fill } from "./dom.js";
import { afterPause, latest } from "./latest.js";
import { probability, score } from "./numbers.js";

/** @typedef {import("./app.js").Page} Page */
/** @typedef {import("./link.js").PageState} PageState */
/** @typedef {import("./runs.js").Run} Run */

/**
 * @typedef {object} Ranked
 * @property {string} sentence
 * @property {number} index
 * @property {number} score
 * @property {number | null} probability
 * @property {[string, number][]} [attention]
 */

const PAUSE = 300;

export class AnswersView {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.question = /** @type {HTMLInputElement} */ (byId("question"));
    this.sentences = /** @type {HTMLTextAreaElement} */ (byId("sentences"));
    this.error = byId("answers-error");
    /** @type {Run[]} */
    this.runs = [];
    this.rank = latest((state) => this.rankNow(state));
    this.rankAfterPause = afterPause((/** @type {PageState} */ state) => this.rank(state), PAUSE);
    this.listen();
  }

  listen() {
    const typed = () =>
      this.page.change({ question: this.question.value, sentences: this.sentences.value.split("\n") });
    this.question.addEventListener("input", typed);
    this.sentences.addEventListener("input", typed);
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.rank(this.page.state);
    });
  }

  /** @param {Run[]} runs */
  open(runs) {
    this.runs = runs;
    fill(byId("rankings"));
    fill(byId("answer-examples"), ...runs[0].examples.map((example) => this.exampleButton(example)));
  }

  close() {
    this.runs = [];
  }

  /** @param {Run} run */
  demonstrate(run) {
    const [example] = run.examples;
    if (example) this.page.change({ question: example.question, sentences: example.sentences });
  }

  /** @param {PageState} state */
  update(state) {
    if (this.question.value !== state.question) this.question.value = state.question;
    const text = state.sentences.join("\n");
    if (this.sentences.value !== text) this.sentences.value = text;
    this.rankAfterPause(state);
  }

  /** What the page asks of the first run. */
  request() {
    return requestOf(this.runs[0], this.page.state);
  }

  /** @param {PageState} state */
  async rankNow(state) {
    const { runs } = this;
    this.error.textContent = "";
    if (!state.question.trim() || !filled(state).length) {
      fill(byId("rankings"));
      return;
    }
    try {
      const isWanted = () => this.runs === runs && this.page.state === state;
      const answers = await Promise.all(runs.map((run) => this.page.api.ask(requestOf(run, state), isWanted)));
      if (this.runs !== runs) return;
      fill(byId("rankings"), ...answers.map((answer, index) => ranking(runs[index], answer.ranking)));
      this.page.announce(`Best answer: ${answers[0].ranking[0].sentence}`);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(byId("rankings"));
      this.error.textContent = error.message;
    }
  }

  /**
   * @param {import("./runs.js").Example} example
   * @returns {HTMLElement}
   */
  exampleButton({ question = "", sentences = [] }) {
    return element(
      "button",
      { type: "button", class: "chip", on: { click: () => this.page.change({ question, sentences }) } },
      question,
    );
  }
}

/**
 * @param {PageState} state
 * @returns {string[]}
 */
function filled({ sentences }) {
  return sentences.map((sentence) => sentence.trim()).filter(Boolean);
}

/**
 * @param {Run} run
 * @param {PageState} state
 */
function requestOf(run, state) {
  const body = { run: run.name, question: state.question.trim(), sentences: filled(state), explain: run.can.explain };
  return { path: "api/rank", body };
}

/**
 * @param {Run} run
 * @param {Ranked[]} ranked
 * @returns {HTMLElement}
 */
function ranking(run, ranked) {
  const label = `Ranking of ${run.name}`;
  return element(
    "section",
    { class: "ranking", "aria-label": label },
    element("h2", {}, label),
    element("ol", {}, ...ranked.map(rankedSentence)),
    run.can.explain &&
      element("p", { class: "hint" }, "The darker a word, the more attention it gets; point at one for the number."),
  );
}

/**
 * @param {Ranked} ranked
 * @returns {HTMLElement}
 */
function rankedSentence({ sentence, score: logOdds, probability: chance, attention }) {
  const most = Math.max(1e-9, ...(attention ?? []).map(([, weight]) => weight));
  const words = attention?.map(([word, weight]) =>
    element(
      "span",
      {
        class: "word",
        title: `attention ${probability(weight)}`,
        style: { "--weight": `${Math.round((70 * weight) / most)}%` },
      },
      word,
    ),
  );
  return element(
    "li",
    {},
    element(
      "span",
      { class: "bar", "aria-hidden": "true", style: { visibility: chance === null ? "hidden" : "visible" } },
      element("span", { class: "bar-fill", style: { width: `${100 * (chance ?? 0)}%` } }),
    ),
    element("span", { class: "number" }, chance === null ? score(logOdds) : probability(chance)),
    element("span", { class: "sentence", dir: "auto" }, ...(words ? words.flatMap((word) => [word, " "]) : [sentence])),
  );
}
