/**
 * The form for the token: what a link says after `#` is kept on the way to the page.
 * @module
 */

const form = /** @type {HTMLFormElement} */ (document.querySelector("form"));
form.action += location.hash;
