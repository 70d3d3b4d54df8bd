/**
 * Elements, built without ever parsing text as HTML.
 * @module
 */

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * A new element. Keys of `properties`: `class`, `on` (listeners by event name), `style` (CSS properties by name);
 * everything else is an attribute, where `true` means an empty one and `false` or `null` none.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) setProperty(made, name, value);
  fill(made, ...children);
  return made;
}

/**
 * Replaces the children of an element.
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(.../** @type {(Node | string)[]} */ (children.filter(Boolean)));
}

/**
 * The element of the page with this id.
 * @template {HTMLElement} T
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return /** @type {T} */ (found);
}

/**
 * @param {HTMLElement} made
 * @param {string} name
 * @param {any} value
 */
function setProperty(made, name, value) {
  if (name === "class") made.className = value;
  else if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
  else if (name === "style") for (const [key, each] of Object.entries(value)) made.style.setProperty(key, each);
  else if (value === true) made.setAttribute(name, "");
  else if (value !== false && value != null) made.setAttribute(name, String(value));
}
