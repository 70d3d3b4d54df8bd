/**
 * Work that only matters for the newest state.
 * @module
 */

/**
 * A function that runs `work` with its newest arguments: while one call is running, later calls replace each other.
 * @template {any[]} A
 * @param {(...given: A) => Promise<void>} work must not throw
 * @returns {(...given: A) => void}
 */
export function latest(work) {
  let running = false;
  /** @type {A | null} */
  let waiting = null;
  const start = async () => {
    running = true;
    while (waiting) {
      const given = waiting;
      waiting = null;
      await work(...given);
    }
    running = false;
  };
  return (...given) => {
    waiting = given;
    if (!running) start();
  };
}

/**
 * A function that calls `work` once no further call has come for some milliseconds.
 * @template {any[]} A
 * @param {(...given: A) => void} work
 * @param {number} milliseconds
 * @returns {(...given: A) => void}
 */
export function afterPause(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => work(...given), milliseconds);
  };
}
