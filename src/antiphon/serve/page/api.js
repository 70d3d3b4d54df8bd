/**
 * Requests to the server.
 * @module
 */

/** @typedef {import("./snippets.js").ApiRequest} ApiRequest */

const LONGEST_WAIT = 8000;

/** An answer that is a refusal, or no answer at all (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {number} retryAfter seconds
   */
  constructor(message, status, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export class Api {
  /**
   * @param {(sentence: string) => void} onTrouble gets a sentence while the server cannot be reached, then an empty one
   */
  constructor(onTrouble) {
    this.base = new URL(".", document.baseURI).href.replace(/\/$/, "");
    this.onTrouble = onTrouble;
  }

  /**
   * The answer to a request. While the server is busy or cannot be reached, the request is sent again, as long as it
   * is wanted.
   * @param {ApiRequest} request
   * @param {() => boolean} isWanted
   * @returns {Promise<any>}
   */
  async ask(request, isWanted) {
    for (let wait = 500; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
      try {
        const answer = await this.fetch(request.path, { method: "POST", body: JSON.stringify(request.body) });
        this.onTrouble("");
        return answer;
      } catch (error) {
        if (!(error instanceof ApiError) || ![0, 429, 503].includes(error.status) || !isWanted()) throw error;
        this.onTrouble(error.message);
        await pause(error.retryAfter ? 1000 * error.retryAfter : wait);
        if (!isWanted()) throw error;
      }
    }
  }

  /**
   * @param {string} path
   * @param {RequestInit} [options]
   * @returns {Promise<any>}
   */
  async fetch(path, options = {}) {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`${this.base}/${path}`, { ...options, headers }).catch(() => null);
    if (!response) throw new ApiError("The server cannot be reached. Trying again; nothing typed is lost.", 0, 0);
    const answer = await response.json().catch(() => null);
    if (response.ok && answer) return answer;
    const sentence = answer?.error ?? `The server answered with status ${response.status}.`;
    throw new ApiError(sentence, response.status, Number(response.headers.get("Retry-After")) || 0);
  }

  /** The address of the socket. */
  get socketAddress() {
    return `${this.base.replace(/^http/, "ws")}/api/stream`;
  }
}

/**
 * @param {number} milliseconds
 * @returns {Promise<void>}
 */
function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
