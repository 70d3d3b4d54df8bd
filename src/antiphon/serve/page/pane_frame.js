/**
 * The elements of one run: what it writes, its lattice as picture and table, notes, errors and candidates.
 * @module
 */

import { CandidateList } from "./candidates.js";
import { element, fill } from "./dom.js";
import { EMPTY_LATTICE, LatticePicture } from "./lattice.js";
import { LatticeTable } from "./lattice_table.js";
import { score, visible } from "./numbers.js";

/** @typedef {import("./candidates.js").Candidate} Candidate */
/** @typedef {import("./geometry.js").Cell} Cell */
/** @typedef {import("./lattice.js").Lattice} Lattice */
/** @typedef {import("./ranking.js").Parts} Parts */
/** @typedef {import("./runs.js").Run} Run */

/**
 * @typedef {object} FrameListeners
 * @property {(cell: Cell | null, byKey: boolean) => void} onCursor
 * @property {(candidate: Candidate) => void} onSelect
 * @property {(weights: Parts) => void} onWeights
 */

export class PaneFrame {
  /**
   * @param {Run} run
   * @param {{pane: HTMLElement, candidates: HTMLElement}} hosts
   * @param {FrameListeners} listeners
   */
  constructor({ name, join }, { pane, candidates }, { onCursor, onSelect, onWeights }) {
    this.output = element("span", { class: join ? "tokens" : "tokens is-joined", dir: "auto" });
    this.progress = element("span");
    this.lagging = element("span", { class: "lagging" });
    this.note = element("p", { class: "note" });
    this.error = element("p", { class: "error", role: "alert" });
    const toggle = element("button", { type: "button", class: "quiet", "aria-pressed": "false" }, "Table");
    const figure = element("div", { class: "figure" });
    const written = element("p", { class: "written" }, this.output);
    const facts = element("span", { class: "facts" }, this.progress, this.lagging, toggle);
    const head = element("div", { class: "pane-head" }, element("h2", {}, name), written, facts);
    fill(pane, head, this.note, this.error, figure);
    /** @type {Lattice} */
    this.lattice = EMPTY_LATTICE;
    this.picture = new LatticePicture(figure, `Lattice of ${name}`, onCursor);
    this.table = new LatticeTable(figure, `Lattice of ${name}`);
    this.list = new CandidateList(candidates, `Candidates of ${name}`, { onSelect, onWeights });
    toggle.addEventListener("click", () => {
      toggle.setAttribute("aria-pressed", String(this.table.toggle(this.lattice)));
    });
  }

  /**
   * Shows the output; what was there before stays as it is, so that only new tokens move.
   * @param {string[]} tokens
   * @param {number} decided how many of them will not change
   */
  showWritten(tokens, decided) {
    const { children } = this.output;
    tokens.forEach((token, index) => {
      const shown = element("span", { class: index < decided ? "token" : "token is-pending" }, visible(token));
      if (!children[index]) this.output.append(shown);
      else if (!children[index].isEqualNode(shown)) children[index].replaceWith(shown);
    });
    while (children.length > tokens.length) children[tokens.length].remove();
  }

  /** @param {Lattice} lattice */
  showLattice(lattice) {
    this.lattice = lattice;
    this.picture.show(lattice);
    this.table.show(lattice);
  }

  /** @param {string} sentence */
  showNote(sentence) {
    this.note.textContent = sentence;
  }

  /** @param {string} sentence */
  showError(sentence) {
    this.error.textContent = sentence;
  }

  /**
   * @param {string} progress what has been read and written
   * @param {number | null} lagging AL; what was known before stays where it is not known yet
   */
  showProgress(progress, lagging) {
    this.progress.textContent = progress;
    if (lagging !== null) this.lagging.textContent = `AL ${score(lagging)}`;
  }

  /** Shows nothing at all. */
  clear() {
    this.showWritten([], 0);
    this.showProgress("", null);
    this.lagging.textContent = "";
    this.showNote("");
    this.showLattice(EMPTY_LATTICE);
    this.list.show([], [], "");
  }
}
