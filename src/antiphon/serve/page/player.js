/**
 * An example that types itself.
 * @module
 */

const PER_CHARACTER = 130;
const BEFORE_END = 350;
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

export class Player {
  /** @param {(text: string, ended: boolean) => void} onText */
  constructor(onText) {
    this.onText = onText;
    this.timer = 0;
  }

  /**
   * Types a text character by character and ends it; at once for those who want no motion.
   * @param {string} text
   */
  play(text) {
    this.stop();
    if (still.matches) this.onText(text, true);
    else this.type([...text], 1);
  }

  stop() {
    clearTimeout(this.timer);
  }

  /**
   * @param {string[]} characters
   * @param {number} count
   */
  type(characters, count) {
    const isWhole = count >= characters.length;
    this.onText(characters.slice(0, count).join(""), false);
    this.timer = window.setTimeout(
      () => (isWhole ? this.onText(characters.join(""), true) : this.type(characters, count + 1)),
      isWhole ? BEFORE_END : PER_CHARACTER,
    );
  }
}
