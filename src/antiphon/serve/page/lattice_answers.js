/**
 * Answers of the server as lattices to draw.
 * @module
 */

/** @typedef {import("./lattice.js").Lattice} Lattice */
/** @typedef {import("./lattice.js").NextToken} NextToken */

/**
 * The lattice of an answer of /api/lattice, or of an event of a stream.
 * @param {any} answer
 * @param {{read: number, readBefore: number[]} | null} stream how many symbols the policy has read, and had read when
 *   it wrote each token; unless these are the symbols of the answer, its rows cannot be told
 * @returns {Lattice}
 */
export function servedLattice(answer, stream) {
  const symbols = answer.source.length - (answer.ended ? 1 : 0);
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
    writtenAt:
      stream?.read === symbols ? stream.readBefore.map((read, column) => policyRow(read, column, answer)) : null,
  };
}

/**
 * The row in which the policy wrote a token. What it wrote after the last symbol it may have written in the row of
 * that symbol or in that of the end: then the one is taken that is nearer to the best path.
 * @param {number} read
 * @param {number} column
 * @param {any} answer
 * @returns {number}
 */
function policyRow(read, column, { source, rows, ended }) {
  const isAtEnd = ended && read === source.length - 1;
  return isAtEnd ? Math.max(read - 1, rows[column]) : read - 1;
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
 * The tokens of a column with both their probabilities, given that one of them is written now; a token that is not
 * listed for the best path has none there.
 * @param {{summed: [string, number][], best_path: [string, number][], read_on: number}} column
 * @returns {NextToken[]}
 */
function nextTokens({ summed, best_path, read_on }) {
  const onPath = new Map(best_path);
  const listed = summed.reduce((sum, [, probability]) => sum + probability, 0);
  const written = Math.max(1 - read_on, listed); // where reading on is all but certain, the difference is rounded away
  return summed.map(([token, probability]) => ({
    token,
    summed: probability / written,
    bestPath: onPath.get(token) ?? null,
  }));
}
