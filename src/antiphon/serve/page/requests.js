/**
 * What the page asks about the input of a state.
 * @module
 */

import { joinPieces, piecesOf } from "./pieces.js";

/** @typedef {import("./link.js").PageState} PageState */
/** @typedef {import("./runs.js").Run} Run */
/** @typedef {import("./snippets.js").ApiRequest} ApiRequest */

const NBEST = 6;

/**
 * The best outputs.
 * @param {Run} run
 * @param {PageState} state
 * @returns {ApiRequest}
 */
export function predictRequest(run, { text, features, prefix }) {
  const input = run.reads_features ? { text: clean(run, text), features } : clean(run, text);
  return { path: "api/predict", body: { run: run.name, inputs: [input], nbest: NBEST, prefix } };
}

/**
 * The lattice of an output.
 * @param {Run} run
 * @param {PageState} state
 * @param {string[]} target
 * @returns {ApiRequest}
 */
export function latticeRequest(run, { text, features, prefix }, target) {
  const body = { run: run.name, input: clean(run, text), features, ended: true, prefix, target };
  return { path: "api/lattice", body };
}

/**
 * The attention weights of an output.
 * @param {Run} run
 * @param {PageState} state
 * @param {string} target
 * @returns {ApiRequest}
 */
export function alignRequest(run, { text, features }, target) {
  return { path: "api/align", body: { run: run.name, pairs: [{ source: clean(run, text), target, features }] } };
}

/**
 * The text as a stream reads it.
 * @param {Run} run
 * @param {string} text
 * @returns {string}
 */
function clean({ source_tokens }, text) {
  return joinPieces(piecesOf(text, source_tokens, true), source_tokens);
}
