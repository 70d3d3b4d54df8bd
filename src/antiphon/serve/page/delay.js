/**
 * The slider of the delay: to the right a stream writes sooner, whatever its policy.
 * @module
 */

import { score, signed } from "./numbers.js";

/** @typedef {import("./link.js").PageState} PageState */
/** @typedef {import("./runs.js").Run} Run */
/** @typedef {"greedy" | "beam"} Policy */

const MOST_BIAS = 6;
const MOST_MARGIN = 8;

/**
 * What the slider is and shows.
 * @typedef {object} Delay
 * @property {number} least
 * @property {number} most
 * @property {number} position
 * @property {string} label
 * @property {string} value
 */

/**
 * The slider of a policy: the greedy one has a bias towards writing, the beam a margin in which its outputs must agree.
 * @param {Policy} policy
 * @param {PageState} state
 * @param {number | null} own the margin of the run; null if all outputs must agree
 * @returns {Delay}
 */
export function delayOf(policy, { bias, margin }, own) {
  if (policy === "greedy")
    return {
      least: -MOST_BIAS,
      most: MOST_BIAS,
      position: bias,
      label: "Emit bias: lower waits, higher writes sooner",
      value: `bias ${signed(bias, 1)}`,
    };
  const nats = margin ?? own;
  return {
    least: -MOST_MARGIN,
    most: 0,
    position: -Math.min(nats ?? MOST_MARGIN, MOST_MARGIN),
    label: "Margin of the beam: outputs this close to the best must agree; wider waits, narrower writes sooner",
    value: nats === null ? "all agree" : `margin ${score(nats, 1)}`,
  };
}

/**
 * What a moved slider changes.
 * @param {Policy} policy
 * @param {number} position
 * @returns {Partial<PageState>}
 */
export function delayChange(policy, position) {
  return policy === "greedy" ? { bias: position } : { margin: Math.abs(position) };
}
