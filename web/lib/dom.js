/** Elements made in one line; text reaches the page as text only. */

/**
 * A new element. Attributes that are null, undefined or false are left out; strings among the children become text.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes]
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/**
 * Sets an element's text where it differs: live numbers come several times a second, most of them unchanged.
 * @param {Element} element
 * @param {string} words
 */
export function setText(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/**
 * A small picture for a mark or a state, drawn in the current colour.
 * @param {string} path
 * @param {{size?: number, filled?: boolean}} [options]
 */
export function glyph(path, { size = 12, filled = true } = {}) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 12 12");
  svg.setAttribute("width", String(size));
  svg.setAttribute("height", String(size));
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(space, "path");
  shape.setAttribute("d", path);
  shape.setAttribute("fill", filled ? "currentColor" : "none");
  if (!filled) {
    shape.setAttribute("stroke", "currentColor");
    shape.setAttribute("stroke-width", "1.6");
    shape.setAttribute("stroke-linecap", "round");
    shape.setAttribute("stroke-linejoin", "round");
  }
  svg.append(shape);
  return svg;
}
