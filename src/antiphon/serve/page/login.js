/**
 * The form for the token: what a link says after `#` is kept on the way to the page. The form follows this script,
 * which is no module, so that nobody can send the form before it runs.
 */

addEventListener("submit", (event) => {
  /** @type {HTMLFormElement} */ (event.target).action += location.hash;
});
