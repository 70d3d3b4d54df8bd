/**
 * One run at work on the input of the page.
 * @module
 */

import { ApiError } from "./api.js";
import { alignedLattice, servedLattice } from "./lattice_answers.js";
import { afterPause, latest } from "./latest.js";
import { visible } from "./numbers.js";
import { PaneFrame } from "./pane_frame.js";
import { piecesOf } from "./pieces.js";
import { PARTS } from "./ranking.js";
import { policyOf } from "./runs.js";
import { alignRequest, latticeRequest, predictRequest } from "./requests.js";
import { StreamSession } from "./stream_session.js";

/** @typedef {import("./api.js").Api} Api */
/** @typedef {import("./candidates.js").Candidate} Candidate */
/** @typedef {import("./candidates.js").Dropped} Dropped */
/** @typedef {import("./geometry.js").Cell} Cell */
/** @typedef {import("./link.js").PageState} PageState */
/** @typedef {import("./ranking.js").Parts} Parts */
/** @typedef {import("./runs.js").Run} Run */
/** @typedef {import("./snippets.js").ApiRequest} ApiRequest */
/** @typedef {import("./stream_session.js").StreamState} StreamState */

/**
 * An output to show in the lattice, with the stream that wrote it, if one did.
 * @typedef {{tokens: string[], text: string, stream?: StreamState}} Output
 */

const MOST_SHOWN = 6;
const MOST_DROPPED = 4;
const PAUSE = 350;
const GREEDY = "The greedy policy keeps one output; candidates are searched for when the input has ended.";
const WAITS = "waits for the end of the input, then writes everything at once.";

/**
 * @typedef {object} PaneListeners
 * @property {(pane: Pane, cell: Cell | null, byKey: boolean) => void} onCursor
 * @property {(weights: Parts) => void} onWeights
 * @property {(sentence: string) => void} onTrouble
 * @property {(tokens: string[]) => void} onWrite
 */

export class Pane {
  /**
   * @param {Run} run
   * @param {Api} api
   * @param {{pane: HTMLElement, candidates: HTMLElement}} hosts
   * @param {PaneListeners} listeners
   */
  constructor(run, api, hosts, listeners) {
    this.run = run;
    this.api = api;
    this.listeners = listeners;
    /** @type {PageState | null} */
    this.state = null;
    /** @type {string[]} */
    this.written = [];
    /** @type {Candidate[] | null} */
    this.predicted = null;
    this.frame = new PaneFrame(run, hosts, {
      onCursor: (cell, byKey) => this.listeners.onCursor(this, cell, byKey),
      onSelect: (candidate) => this.select(candidate),
      onWeights: listeners.onWeights,
    });
    this.predict = latest((state) => this.predictNow(state));
    this.predictAfterPause = afterPause((/** @type {PageState} */ state) => this.predict(state), PAUSE);
    this.showLattice = latest((state, output) => this.askLattice(state, output));
    this.session = run.can.stream ? this.openSession() : null;
  }

  /** @returns {import("./lattice.js").Lattice} */
  get lattice() {
    return this.frame.lattice;
  }

  openSession() {
    return new StreamSession(this.api.socketAddress, this.run.name, {
      onChange: (stream, event) => this.streamed(stream, event),
      onTrouble: this.listeners.onTrouble,
      onError: (sentence) => this.frame.showError(sentence),
    });
  }

  /**
   * Follows the state of the page; moved weights only rank again.
   * @param {PageState} state
   */
  update(state) {
    const before = this.state;
    this.state = state;
    if (JSON.stringify(state.weights) !== JSON.stringify(before?.weights)) this.setWeights(state.weights);
    if (before && isSameWork(before, state)) return;
    this.frame.showError("");
    this.predicted = null;
    if (!state.text.trim()) this.clear(state);
    else if (this.session) this.stream(state, this.session);
    else this.waitForEnd(state);
  }

  close() {
    this.session?.close();
    this.state = null;
  }

  /** @param {number[]} given */
  setWeights(given) {
    const own = this.run.weights;
    const chosen = given.length ? Object.fromEntries(PARTS.map(([part], index) => [part, given[index]])) : own;
    if (own) this.frame.list.setWeights(/** @type {Parts} */ (chosen), own);
  }

  /** @param {PageState} state */
  clear(state) {
    this.session?.want([], false, this.streamOptions(state));
    this.written = [];
    this.frame.clear();
  }

  /**
   * @param {PageState} state
   * @param {StreamSession} session
   */
  stream(state, session) {
    session.want(piecesOf(state.text, this.run.source_tokens, state.ended), state.ended, this.streamOptions(state));
    if (state.ended) this.predict(state);
  }

  /** @param {PageState} state */
  streamOptions({ policy, bias, margin, features, prefix }) {
    const known = policyOf(this.run, policy);
    const isGreedy = known === "greedy";
    return { policy: known, emit_bias: isGreedy ? bias : 0, margin: isGreedy ? null : margin, features, prefix };
  }

  /** @param {PageState} state */
  waitForEnd(state) {
    const reader =
      this.run.encoder === "bidirectional" ? "This run reads its input in both directions, so it" : "This run";
    const isExplained = this.run.can.lattice || this.run.can.align;
    this.frame.showNote(`${reader} ${WAITS}${isExplained ? "" : " It has no alignments to show."}`);
    if (state.ended) this.predict(state);
    else this.predictAfterPause(state);
  }

  /**
   * @param {StreamState} stream
   * @param {string} event
   */
  streamed(stream, event) {
    if (!this.state?.text.trim()) return;
    const { read, written, lattice, lagging, text } = stream;
    this.showNotes(stream);
    this.frame.showProgress(`read ${read}, wrote ${written.length}`, lagging);
    if (event === "write") this.showNew(written);
    else if (event === "lattice") this.showReading(lattice, stream);
    else if (event === "end") this.showEnded(stream, text ?? "");
  }

  /**
   * Says which symbols are unknown, and whether deciding while reading has led to another output than the best one.
   * @param {StreamState} stream
   */
  showNotes({ unknown, text }) {
    const best = this.predicted?.[0]?.text;
    const isOther = text !== null && best !== undefined && text !== best;
    const other = isOther ? "Written while reading; with the whole input, the search prefers candidate 1." : "";
    this.frame.showNote([unknownSentence(unknown), other].filter(Boolean).join(" "));
  }

  /** @param {string[]} written */
  showNew(written) {
    const goesOn = this.written.every((token, index) => written[index] === token);
    if (goesOn && written.length > this.written.length) this.listeners.onWrite(written.slice(this.written.length));
    this.written = [...written];
    this.frame.showWritten(written, written.length);
  }

  /**
   * @param {StreamState} stream
   * @param {string} text
   */
  showEnded(stream, text) {
    const { written } = stream;
    this.frame.showWritten(written, written.length);
    this.frame.list.select(text);
    if (this.state) this.showLattice(this.state, { tokens: written, text, stream });
  }

  /**
   * @param {any} lattice
   * @param {StreamState} stream
   */
  showReading(lattice, stream) {
    const { written } = stream;
    this.frame.showWritten([...written, ...lattice.target.slice(written.length)], written.length);
    this.frame.showLattice(servedLattice(lattice, stream));
    const dropped = lattice.dropped.slice(0, MOST_DROPPED).map(droppedWhileReading(lattice.source));
    const { list } = this.frame;
    if (this.predicted) list.show(this.predicted, dropped, lattice.text);
    else if (this.streamOptions(/** @type {PageState} */ (this.state)).policy === "greedy") list.wait(GREEDY);
    else list.show(lattice.candidates.slice(0, MOST_SHOWN), dropped, lattice.text);
  }

  /**
   * What the page asks about a state.
   * @param {PageState} state
   * @returns {ApiRequest}
   */
  request(state) {
    return predictRequest(this.run, state);
  }

  /** @param {PageState} state */
  async predictNow(state) {
    const answer = await this.ask(this.request(state), state);
    if (!answer) return;
    const [prediction] = answer.predictions;
    const { list } = this.frame;
    this.predicted = prediction.nbest;
    if (!prediction.nbest.length) this.frame.showError(`No output: ${prediction.reason}.`);
    list.show(prediction.nbest, list.dropped, this.session ? list.selected : prediction.text);
    if (this.session) this.showNotes(this.session.state);
    else this.showPrediction(prediction, state);
  }

  /**
   * @param {any} prediction
   * @param {PageState} state
   */
  showPrediction(prediction, state) {
    const { source_symbols, tokens, unknown, nbest } = prediction;
    if (unknown.length) this.frame.showNote(unknownSentence(unknown));
    this.frame.showProgress(`read all ${source_symbols.length - 1}, then wrote ${tokens.length}`, null);
    if (nbest.length) this.showCandidate(nbest[0], state);
    else this.frame.showWritten([], 0);
  }

  /** @param {Candidate} candidate */
  select(candidate) {
    if (!this.state) return;
    this.frame.list.select(candidate.text);
    this.showCandidate(candidate, this.state);
  }

  /**
   * @param {Candidate} candidate
   * @param {PageState} state
   */
  showCandidate(candidate, state) {
    this.frame.showWritten(candidate.tokens, candidate.tokens.length);
    this.listeners.onWrite(candidate.tokens);
    if (this.run.can.lattice || this.run.can.align) this.showLattice(state, candidate);
  }

  /**
   * @param {PageState} state
   * @param {Output} output
   */
  async askLattice(state, output) {
    const { list } = this.frame;
    if (this.run.can.lattice) {
      const answer = await this.ask(latticeRequest(this.run, state, output.tokens), state);
      if (!answer) return;
      this.frame.showLattice(servedLattice(answer, output.stream ?? null));
      list.show(list.candidates, answer.dropped.slice(0, MOST_DROPPED).map(droppedInSearch), list.selected);
    } else {
      const answer = await this.ask(alignRequest(this.run, state, output.text), state);
      if (answer) this.frame.showLattice(alignedLattice(answer.alignments[0]));
    }
  }

  /**
   * The answer to a request about a state; null if the state has changed since or the request is refused.
   * @param {ApiRequest} request
   * @param {PageState} state
   * @returns {Promise<any>}
   */
  async ask(request, state) {
    const isWanted = () => this.state !== null && isSameWork(this.state, state);
    try {
      const answer = await this.api.ask(request, isWanted);
      return isWanted() ? answer : null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (isWanted()) this.frame.showError(error.message);
      return null;
    }
  }
}

/**
 * Whether two states ask for the same output.
 * @param {PageState} one
 * @param {PageState} other
 * @returns {boolean}
 */
function isSameWork(one, other) {
  const work = (/** @type {PageState} */ { text, ended, features, policy, bias, margin, prefix }) => [
    text,
    ended,
    features,
    policy,
    bias,
    margin,
    prefix,
  ];
  return JSON.stringify(work(one)) === JSON.stringify(work(other));
}

/**
 * @param {string[]} unknown
 * @returns {string}
 */
function unknownSentence(unknown) {
  return unknown.length ? `Never seen in training: ${unknown.map(visible).join(" ")}` : "";
}

/**
 * @param {string[]} source
 * @returns {(dropped: {text: string, step: number}) => Dropped}
 */
function droppedWhileReading(source) {
  return ({ text, step }) => ({ text, reason: `dropped after reading ${visible(source[step - 1] ?? "the end")}` });
}

/**
 * @param {{text: string, step: number}} dropped
 * @returns {Dropped}
 */
function droppedInSearch({ text, step }) {
  return { text, reason: `dropped at token ${step}` };
}
