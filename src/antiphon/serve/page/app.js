/**
 * The page: loads the runs, keeps the state, and shows the view that suits the chosen run.
 * @module
 */

import { AnswersView } from "./answers_view.js";
import { Api, ApiError } from "./api.js";
import { byId, element, fill } from "./dom.js";
import { afterPause } from "./latest.js";
import { LanguageView } from "./language_view.js";
import { EMPTY_STATE, fromHash, toHash } from "./link.js";
import { titleOf, viewOf } from "./runs.js";
import { asCurl, asPython } from "./snippets.js";
import { startTheme } from "./theme.js";
import { TransductionView } from "./transduction_view.js";

/** @typedef {import("./link.js").PageState} PageState */
/** @typedef {import("./runs.js").Run} Run */

const ADDRESS_PAUSE = 200;

export class Page {
  constructor() {
    this.api = new Api((sentence) => this.showTrouble(sentence));
    /** @type {PageState} */
    this.state = { ...EMPTY_STATE };
    /** @type {Run[]} */
    this.runs = [];
    this.needsToken = false;
    this.noteAddress = afterPause(() => history.replaceState(null, "", toHash(this.state)), ADDRESS_PAUSE);
    this.transduction = new TransductionView(this);
    this.views = { transduction: this.transduction, answers: new AnswersView(this), language: new LanguageView(this) };
    /** @type {TransductionView | AnswersView | LanguageView} */
    this.view = this.transduction;
    this.listen();
  }

  listen() {
    startTheme(byId("theme"), () => this.transduction.refreshColours());
    byId("run").addEventListener("change", () => this.choose({ run: selected("run"), compare: "" }));
    byId("compare").addEventListener("change", () => this.choose({ compare: selected("compare") }));
    byId("explain").addEventListener("click", () => this.explain(Boolean(byId("explanation").hidden)));
    byId("copy-curl").addEventListener("click", () => this.copy(asCurl, "The curl command is copied."));
    byId("copy-python").addEventListener("click", () => this.copy(asPython, "The Python program is copied."));
    byId("copy-link").addEventListener("click", () =>
      this.say(`${this.api.base}/${toHash(this.state)}`, "The link is copied."),
    );
    window.addEventListener("hashchange", () => this.openLink());
  }

  /** Asks the server for its runs, again and again until it answers. */
  async start() {
    for (;;) {
      try {
        const { runs, needs_token } = await this.api.fetch("api/runs");
        this.runs = runs;
        this.needsToken = Boolean(needs_token);
        this.showTrouble("");
        break;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        this.showTrouble(
          error.status === 401 ? "This server wants a token: load the page again to enter it." : error.message,
        );
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
    this.openLink();
  }

  /** Shows what the address says; a plain address starts with an example. */
  openLink() {
    const state = fromHash(location.hash);
    const run = this.runs.find(({ name }) => name === state.run);
    this.state = { ...state, run: (run ?? this.runs[0]).name };
    this.openView();
    this.showMissing([state.run, state.compare].filter((name) => name && !this.runs.some((each) => each.name === name)));
    if (run && (state.text || state.question)) this.change({});
    else this.demonstrate();
  }

  /**
   * Changes the state, and with it the address and the view.
   * @param {Partial<PageState>} change
   */
  change(change) {
    this.state = { ...this.state, ...change };
    this.noteAddress();
    this.view.update(this.state);
  }

  /**
   * Takes other runs; what was typed is kept where the new run can read it.
   * @param {Partial<PageState>} change
   */
  choose(change) {
    this.showMissing([]);
    const before = this.chosen()[0];
    this.state = { ...this.state, ...change, weights: [], prefix: [] };
    this.openView();
    const now = this.chosen()[0];
    const isSameInput = viewOf(before) === viewOf(now) && before.source_tokens === now.source_tokens;
    if (isSameInput && before.reads_features === now.reads_features) this.change({});
    else this.demonstrate();
  }

  /** The run, and the one that it is compared with, if any. */
  chosen() {
    const run = /** @type {Run} */ (this.runs.find(({ name }) => name === this.state.run));
    const other = this.comparable(run).find(({ name }) => name === this.state.compare);
    return other ? [run, other] : [run];
  }

  /**
   * Runs with the same view and the same input.
   * @param {Run} run
   * @returns {Run[]}
   */
  comparable(run) {
    return this.runs.filter(
      (each) =>
        each !== run &&
        viewOf(each) === viewOf(run) &&
        each.source_tokens === run.source_tokens &&
        each.reads_features === run.reads_features,
    );
  }

  openView() {
    const runs = this.chosen();
    const name = viewOf(runs[0]);
    this.view.close();
    this.view = this.views[name];
    for (const each of Object.keys(this.views)) byId(each).hidden = each !== name;
    const others = this.comparable(runs[0]);
    fill(byId("run"), ...this.runs.map((run) => option(run.name, titleOf(run), run === runs[0])));
    fill(
      byId("compare"),
      option("", "nothing", runs.length < 2),
      ...others.map((run) => option(run.name, run.name, run === runs[1])),
    );
    byId("compare-field").hidden = !others.length;
    byId("explain").hidden = name !== "transduction" || !(runs[0].can.lattice || runs[0].can.align);
    byId("about").textContent = byId("about").title = runs
      .map((run) => (runs[1] ? `${run.name}: ${run.about}` : run.about))
      .join(". ");
    this.explain(false);
    this.view.open(runs);
  }

  demonstrate() {
    this.change({ text: "", ended: false, features: "", question: "", sentences: [] });
    this.view.demonstrate(this.chosen()[0]);
  }

  /** @param {boolean} isExplained */
  explain(isExplained) {
    byId("explanation").hidden = !isExplained;
    byId("explain").setAttribute("aria-expanded", String(isExplained));
    if (this.transduction.panes.length) this.transduction.explain(isExplained);
  }

  /**
   * @param {typeof asCurl} format
   * @param {string} done
   */
  copy(format, done) {
    this.say(format(this.api.base, this.view.request(), this.needsToken), done);
  }

  /**
   * Puts a text on the clipboard, or shows it to be copied where that is not allowed.
   * @param {string} text
   * @param {string} done
   */
  async say(text, done) {
    const isCopied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    const shown = /** @type {HTMLTextAreaElement} */ (byId("copied-text"));
    shown.value = text;
    byId("copied-note").textContent = isCopied ? done : "Copy it from here.";
    /** @type {HTMLDialogElement} */ (byId("copied")).showModal();
    shown.select();
  }

  /**
   * Says a sentence to screen readers.
   * @param {string} sentence
   */
  announce(sentence) {
    byId("announcements").textContent = sentence;
  }

  /**
   * Says which runs of a link are not served here.
   * @param {string[]} names
   */
  showMissing(names) {
    const runs = names.length > 1 ? "runs" : "run";
    byId("missing").textContent = `The link names the ${runs} ${names.join(" and ")}, not served here; this is ${this.state.run}.`;
    byId("missing").hidden = !names.length;
  }

  /**
   * Shows that the server cannot be reached; an empty sentence once it can.
   * @param {string} sentence
   */
  showTrouble(sentence) {
    byId("trouble").textContent = sentence;
    byId("trouble").hidden = !sentence;
  }
}

/**
 * @param {string} id
 * @returns {string}
 */
function selected(id) {
  return /** @type {HTMLSelectElement} */ (byId(id)).value;
}

/**
 * @param {string} value
 * @param {string} text
 * @param {boolean} isSelected
 * @returns {HTMLElement}
 */
function option(value, text, isSelected) {
  return element("option", { value, selected: isSelected }, text);
}

new Page().start();
