/**
 * A request of the page as a command for a shell and as a Python program.
 * @module
 */

/** @typedef {{path: string, body: object}} ApiRequest */

/**
 * The request as a command; a token is taken from the environment.
 * @param {string} base address of the server, without a slash at its end
 * @param {ApiRequest} request
 * @param {boolean} needsToken
 * @returns {string}
 */
export function asCurl(base, { path, body }, needsToken) {
  const lines = [`curl ${quoted(`${base}/${path}`)}`, `-H 'Content-Type: application/json'`];
  if (needsToken) lines.push('-H "Authorization: Bearer $ANTIPHON_TOKEN"');
  lines.push(`-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

/**
 * The request as a program that needs nothing but Python.
 * @param {string} base
 * @param {ApiRequest} request
 * @param {boolean} needsToken
 * @returns {string}
 */
export function asPython(base, { path, body }, needsToken) {
  const headers = ['"Content-Type": "application/json"'];
  if (needsToken) headers.push(`"Authorization": "Bearer " + os.environ["ANTIPHON_TOKEN"]`);
  return [
    "import json",
    ...(needsToken ? ["import os"] : []),
    "from urllib.request import Request, urlopen",
    "",
    `asked = ${literal(body)}`,
    "request = Request(",
    `    ${JSON.stringify(`${base}/${path}`)},`,
    "    json.dumps(asked).encode(),",
    `    {${headers.join(", ")}},`,
    ")",
    "with urlopen(request) as response:",
    "    print(json.dumps(json.load(response), indent=2, ensure_ascii=False))",
    "",
  ].join("\n");
}

/**
 * A string in single quotes for a POSIX shell.
 * @param {string} text
 * @returns {string}
 */
function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * A value of JSON as a Python literal.
 * @param {unknown} value
 * @returns {string}
 */
function literal(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([key, each]) => `${literal(key)}: ${literal(each)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
}
