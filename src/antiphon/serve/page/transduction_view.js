/**
 * The view of runs that map an input to an output: type, and watch one or two of them read and write.
 * @module
 */

import { cellSentence, CursorPanel } from "./cursor_panel.js";
import { delayChange, delayOf } from "./delay.js";
import { byId, element, fill } from "./dom.js";
import { Pane } from "./pane.js";
import { Player } from "./player.js";
import { PARTS } from "./ranking.js";
import { policyOf } from "./runs.js";
import { visible } from "./numbers.js";

/** @typedef {import("./geometry.js").Cell} Cell */
/** @typedef {import("./link.js").PageState} PageState */
/** @typedef {import("./runs.js").Run} Run */
/** @typedef {import("./app.js").Page} Page */

export class TransductionView {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.text = /** @type {HTMLInputElement} */ (byId("text"));
    this.features = /** @type {HTMLInputElement} */ (byId("features"));
    this.delay = /** @type {HTMLInputElement} */ (byId("delay"));
    this.policies = /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("input[name=policy]"));
    this.player = new Player((text, ended) => this.page.change({ text, ended }));
    this.panel = new CursorPanel(byId("cursor"), (column, token) => this.force(column, token));
    /** @type {Pane[]} */
    this.panes = [];
    /** @type {Pane | null} */
    this.described = null;
    this.listen();
  }

  listen() {
    const { page } = this;
    this.text.addEventListener("input", () => this.typed({ text: this.text.value, ended: false }));
    byId("type").addEventListener("submit", (event) => {
      event.preventDefault();
      this.typed({ text: this.text.value, ended: true });
    });
    this.features.addEventListener("input", () => page.change({ features: this.features.value.trim() }));
    this.delay.addEventListener("input", () => page.change(delayChange(this.policy, Number(this.delay.value))));
    this.policies.forEach((radio) =>
      radio.addEventListener("change", () => page.change({ policy: /** @type {"greedy" | "beam"} */ (radio.value) })),
    );
    byId("unforce").addEventListener("click", () => page.change({ prefix: [] }));
  }

  /** @param {Partial<PageState>} typed */
  typed(typed) {
    this.player.stop();
    this.page.change(typed);
  }

  /**
   * Shows these runs, the first and perhaps one to compare with it.
   * @param {Run[]} runs
   */
  open(runs) {
    this.close();
    fill(byId("panes"));
    fill(byId("candidates"));
    this.panes = runs.map((run) => this.openPane(run));
    byId("transduction").classList.toggle("is-comparing", runs.length > 1);
    byId("features-field").hidden = !runs.some((run) => run.reads_features);
    byId("of-alignment").hidden = !runs[0].can.lattice;
    byId("of-attention").hidden = runs[0].can.lattice;
    byId("stream-controls").hidden = !runs.some((run) => run.can.stream);
    fill(byId("feature-choices"), ...runs[0].features.map((feature) => this.featureButton(feature)));
    this.policies.forEach((radio) => (radio.disabled = !runs.some((run) => policyOf(run, radio.value) === radio.value)));
    fill(byId("examples"), ...runs[0].examples.map((example) => this.exampleButton(example)));
    this.panel.show(this.panes[0].lattice, null);
  }

  close() {
    this.player.stop();
    this.panes.forEach((pane) => pane.close());
    this.panes = [];
  }

  /**
   * @param {Run} run
   * @returns {Pane}
   */
  openPane(run) {
    const pane = element("section", { class: "pane", "aria-label": run.name });
    const candidates = element("section", { class: "candidate-list" });
    byId("panes").append(pane);
    byId("candidates").append(candidates);
    return new Pane(
      run,
      this.page.api,
      { pane, candidates },
      {
        onCursor: (of, cell, byKey) => this.describe(of, cell, byKey),
        onWeights: (weights) => this.page.change({ weights: PARTS.map(([part]) => weights[part]) }),
        onTrouble: (sentence) => this.page.showTrouble(sentence),
        onWrite: (tokens) => this.page.announce(`wrote ${tokens.map(visible).join(" ")}`),
      },
    );
  }

  /**
   * Types the first example by itself.
   * @param {Run} run
   */
  demonstrate(run) {
    const [example] = run.examples;
    if (!example) return;
    this.page.change({ features: example.features ?? "", prefix: [] });
    this.player.play(example.input ?? "");
  }

  /** @param {PageState} state */
  update(state) {
    if (this.text.value !== state.text) this.text.value = state.text;
    if (this.features.value.trim() !== state.features) this.features.value = state.features;
    this.policies.forEach((radio) => (radio.checked = radio.value === this.policy));
    this.showDelay(state);
    this.showForced(state.prefix);
    this.markFeatures(state.features);
    this.panes.forEach((pane) => pane.update(state));
  }

  /** The policy that is chosen, or the only one that the runs have. */
  get policy() {
    const { policy } = this.page.state;
    const used = this.panes.map(({ run }) => policyOf(run, policy));
    return used.includes(policy) ? policy : used.find(Boolean) ?? policy;
  }

  /** @param {PageState} state */
  showDelay(state) {
    const of = this.panes.find(({ run }) => policyOf(run, state.policy) === this.policy);
    const { least, most, position, label, value } = delayOf(this.policy, state, of?.run.margin ?? null);
    this.delay.min = String(least);
    this.delay.max = String(most);
    this.delay.value = String(position);
    this.delay.setAttribute("aria-label", label);
    this.delay.setAttribute("aria-valuetext", value);
    byId("delay-value").textContent = value;
  }

  /** What the page asked of the first run. */
  request() {
    return this.panes[0].request(this.page.state);
  }

  /** @param {boolean} isExplained */
  explain(isExplained) {
    this.panes[0].frame.picture.explain(isExplained);
  }

  refreshColours() {
    this.panes.forEach((pane) => pane.frame.picture.refreshColours());
  }

  /**
   * @param {Pane} pane
   * @param {Cell | null} cell
   * @param {boolean} byKey
   */
  describe(pane, cell, byKey) {
    this.described = pane;
    this.panel.show(pane.lattice, cell);
    if (byKey && cell) this.page.announce(cellSentence(pane.lattice, cell));
  }

  /**
   * Makes the output begin with what is written before a column, and then this token.
   * @param {number} column
   * @param {string} token
   */
  force(column, token) {
    if (!this.described) return;
    this.player.stop();
    this.page.change({ prefix: [...this.described.lattice.target.slice(0, column), token] });
  }

  /** @param {string[]} prefix */
  showForced(prefix) {
    byId("forced").hidden = !prefix.length;
    byId("forced-tokens").textContent = prefix.map(visible).join(" ");
  }

  /**
   * @param {string} feature
   * @returns {HTMLElement}
   */
  featureButton(feature) {
    return element(
      "button",
      { type: "button", class: "chip", "data-feature": feature, on: { click: () => this.toggleFeature(feature) } },
      feature,
    );
  }

  /** @param {string} feature */
  toggleFeature(feature) {
    const given = split(this.page.state.features);
    const without = given.filter((each) => each !== feature);
    this.page.change({ features: (without.length < given.length ? without : [...given, feature]).join(";") });
  }

  /** @param {string} features */
  markFeatures(features) {
    const given = split(features);
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#feature-choices .chip")))
      button.setAttribute("aria-pressed", String(given.includes(button.dataset.feature ?? "")));
  }

  /**
   * @param {import("./runs.js").Example} example
   * @returns {HTMLElement}
   */
  exampleButton({ input = "", features = "" }) {
    const play = () => {
      this.page.change({ features, prefix: [] });
      this.player.play(input);
    };
    const title = features ? `${input} ${features}` : input;
    return element("button", { type: "button", class: "chip", title, on: { click: play } }, title);
  }
}

/**
 * @param {string} features
 * @returns {string[]}
 */
function split(features) {
  return features.split(";").filter(Boolean);
}
