/**
 * Light and dark: as the system has it, until the visitor chooses.
 * @module
 */

const KEY = "antiphon-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");

/**
 * Applies the chosen theme, and makes the button switch it; `onChange` is called after every change.
 * @param {HTMLElement} button
 * @param {() => void} onChange
 */
export function startTheme(button, onChange) {
  const apply = () => {
    const theme = current();
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    onChange();
  };
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, current() === "dark" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

/** @returns {"light" | "dark"} */
function current() {
  const chosen = localStorage.getItem(KEY);
  if (chosen === "light" || chosen === "dark") return chosen;
  return system.matches ? "dark" : "light";
}
