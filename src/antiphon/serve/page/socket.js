/**
 * A socket that opens again after it was lost.
 * @module
 */

const LONGEST_WAIT = 8000;
const IDLE = 4408;
const INPUT_TOO_LONG = 4413;

/**
 * @typedef {object} SocketListeners
 * @property {() => void} onOpen
 * @property {(event: any) => void} onEvent
 * @property {(sentence: string) => void} onTrouble gets a sentence while there is no connection, then an empty one
 * @property {(sentence: string) => void} onRefusal gets a sentence if opening again would not help
 */

export class Socket {
  /**
   * @param {string} address
   * @param {SocketListeners} listeners
   */
  constructor(address, listeners) {
    this.address = address;
    this.listeners = listeners;
    /** @type {WebSocket | null} */
    this.connection = null;
    this.wait = 500;
    this.timer = 0;
  }

  /** Whether what is sent will arrive. */
  get isOpen() {
    return this.connection?.readyState === WebSocket.OPEN;
  }

  /** Opens the connection, unless it is open or opening. */
  open() {
    if (this.connection) return;
    clearTimeout(this.timer);
    const connection = new WebSocket(this.address);
    this.connection = connection;
    connection.addEventListener("open", () => {
      if (connection !== this.connection) return;
      this.wait = 500;
      this.listeners.onTrouble("");
      this.listeners.onOpen();
    });
    connection.addEventListener("message", ({ data }) => this.listeners.onEvent(JSON.parse(data)));
    connection.addEventListener("close", (event) => this.closed(connection, event.code));
  }

  /** @param {object} event */
  send(event) {
    this.connection?.send(JSON.stringify(event));
  }

  /** Ends the connection for good. */
  close() {
    clearTimeout(this.timer);
    const connection = this.connection;
    this.connection = null;
    if (connection?.readyState === WebSocket.CONNECTING) connection.addEventListener("open", () => connection.close());
    else connection?.close();
  }

  /**
   * @param {WebSocket} connection
   * @param {number} code
   */
  closed(connection, code) {
    if (connection !== this.connection) return;
    this.connection = null;
    if (code === IDLE) return;
    if (code === INPUT_TOO_LONG) {
      this.listeners.onRefusal("The input is too long for a stream, expected a shorter one.");
      return;
    }
    this.listeners.onTrouble("The connection was lost. Trying again; nothing typed is lost.");
    this.timer = window.setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }
}
