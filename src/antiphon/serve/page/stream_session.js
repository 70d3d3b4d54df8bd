/**
 * A stream of the server that follows what is typed: it reads on, or starts again where the text has changed.
 * @module
 */

import { Socket } from "./socket.js";

/** @typedef {{policy: string, emit_bias: number, margin: number | null, features: string, prefix: string[]}} StreamOptions */

/**
 * What a stream has done so far.
 * @typedef {object} StreamState
 * @property {number} read symbols of the input
 * @property {string[]} written
 * @property {number[]} readBefore how much had been read when each token was written
 * @property {number | null} lagging AL so far
 * @property {string | null} text the whole output, once the input has ended
 * @property {string[]} unknown symbols that training never saw
 * @property {any} lattice the newest lattice event
 */

/**
 * @typedef {object} StreamListeners
 * @property {(state: StreamState, event: string) => void} onChange gets the name of the event that changed it
 * @property {(sentence: string) => void} onTrouble
 * @property {(sentence: string) => void} onError
 */

export class StreamSession {
  /**
   * @param {string} address
   * @param {string} run
   * @param {StreamListeners} listeners
   */
  constructor(address, run, listeners) {
    this.run = run;
    this.listeners = listeners;
    this.state = newState();
    this.wanted = {
      pieces: /** @type {string[]} */ ([]),
      ended: false,
      options: /** @type {StreamOptions | null} */ (null),
    };
    /** @type {string[]} */
    this.sent = [];
    this.sentEnd = false;
    this.sentOptions = "";
    this.startsExpected = 0;
    this.socket = new Socket(address, {
      onOpen: () => this.opened(),
      onEvent: (event) => this.receive(event),
      onTrouble: listeners.onTrouble,
      onRefusal: listeners.onError,
    });
  }

  /**
   * Says what should have been read.
   * @param {string[]} pieces
   * @param {boolean} ended
   * @param {StreamOptions} options
   */
  want(pieces, ended, options) {
    this.wanted = { pieces, ended, options };
    if (this.socket.isOpen) this.synchronise();
    else this.socket.open();
  }

  close() {
    this.socket.close();
  }

  opened() {
    this.startAgain();
    this.synchronise();
  }

  /** Forgets what was sent on an earlier connection. */
  startAgain() {
    this.sent = [];
    this.sentEnd = false;
    this.sentOptions = "";
    this.startsExpected = 0;
  }

  /** Sends what the server has not read yet, after a reset if it has read something else. */
  synchronise() {
    const { pieces, ended, options } = this.wanted;
    if (!this.continues()) {
      this.socket.send({ event: this.sentOptions ? "reset" : "start", run: this.run, watch: true, ...options });
      this.startsExpected += 1;
      this.sent = [];
      this.sentEnd = false;
      this.sentOptions = JSON.stringify(options);
    }
    for (const piece of pieces.slice(this.sent.length)) this.socket.send({ event: "read", text: piece });
    this.sent = pieces;
    if (ended && !this.sentEnd) this.socket.send({ event: "end" });
    this.sentEnd = ended;
  }

  /** Whether what was sent is the beginning of what is wanted, with the same options. */
  continues() {
    const { pieces, ended, options } = this.wanted;
    const isStart = this.sent.every((piece, index) => pieces[index] === piece);
    const isOver = this.sentEnd && (!ended || this.sent.length < pieces.length);
    return isStart && !isOver && this.sentOptions === JSON.stringify(options);
  }

  /** @param {any} event */
  receive(event) {
    if (event.event === "started") {
      this.startsExpected -= 1;
      this.state = newState();
    } else if (event.event === "error") {
      this.refused(event.error);
    }
    if (this.startsExpected > 0) return; // of an input that is no longer wanted
    this.note(event);
    this.listeners.onChange(this.state, event.event);
  }

  /** @param {string} sentence */
  refused(sentence) {
    this.startAgain();
    this.socket.close();
    this.listeners.onError(sentence);
  }

  /** @param {any} event */
  note(event) {
    const { state } = this;
    if (event.event === "read") {
      state.read = event.position;
      state.unknown.push(...event.unknown);
    } else if (event.event === "write") {
      state.written.push(event.token);
      state.readBefore.push(state.read);
    } else if (event.event === "lattice") {
      state.lattice = event;
      state.lagging = event.AL;
    } else if (event.event === "end") {
      state.text = event.text;
      state.lagging = event.AL;
    }
  }
}

/** @returns {StreamState} */
function newState() {
  return { read: 0, written: [], readBefore: [], lagging: null, text: null, unknown: [], lattice: null };
}
