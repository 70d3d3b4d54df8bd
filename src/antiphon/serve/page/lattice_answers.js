/**
 * Answers of the server as lattices to draw.
 * @module
 */

/** @typedef {import("./lattice.js").Lattice} Lattice */
/** @typedef {import("./lattice.js").NextToken} NextToken */

/**
 * The lattice of an answer of /api/lattice.
 * @param {any} answer
 * @returns {Lattice}
 */
export function servedLattice(answer) {
  return {
    source: answer.source,
    target: answer.target,
    rows: answer.rows,
    posterior: answer.posterior,
    emit: answer.write,
    next: answer.next.map(nextTokens),
    complete: answer.ended,
    decided: answer.ended ? answer.target.length : answer.written,
    method: answer.method,
    writtenAt: null,
  };
}

/**
 * The lattice of an event of a stream, with the rows in which the policy wrote.
 * @param {any} event
 * @returns {Lattice}
 */
export function streamedLattice(event) {
  return { ...servedLattice(event), writtenAt: event.written_at ?? null };
}

/**
 * The lattice of an answer of /api/align, as for attention models.
 * @param {any} alignment
 * @returns {Lattice}
 */
export function alignedLattice({ source, target, rows, posterior, method }) {
  return {
    source,
    target,
    rows,
    posterior,
    method,
    emit: null,
    next: null,
    complete: true,
    decided: target.length,
    writtenAt: null,
  };
}

/**
 * The tokens of a column with both their probabilities; one that is not listed for the best path has none there.
 * @param {{summed: [string, number][], best_path: [string, number][]}} column
 * @returns {NextToken[]}
 */
function nextTokens({ summed, best_path }) {
  const onPath = new Map(best_path);
  return summed.map(([token, probability]) => ({ token, summed: probability, bestPath: onPath.get(token) ?? null }));
}
