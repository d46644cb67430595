/** Pointer gestures on the charts: hovering, dragging over a stretch, going back to all. Positions in pixels of the element. */

/** A hand trembles: a shorter drag is a click. */
const SHORTEST_DRAG_PX = 5;

/**
 * @typedef {object} Gestures
 * @property {(x: number, y: number) => void} point at a place
 * @property {() => void} leave
 * @property {(from: number, to: number) => void} dragging
 * @property {(from: number, to: number) => void} select a stretch
 * @property {(x: number, y: number) => void} pick a place
 * @property {() => void} cancel a drag
 * @property {() => void} reset
 */

/**
 * A mouse or pen points by hovering and selects by dragging; a finger points by touching and moving sideways, its
 * upward moves scroll the page (`touch-action: pan-y`).
 * @param {HTMLElement} element
 * @param {Gestures} gestures
 * @param {AbortSignal} signal
 */
export function listenForGestures(element, gestures, signal) {
  /** @type {number | null} */
  let start = null;
  let dragged = false;
  const place = (/** @type {PointerEvent} */ event) => {
    const { left, top } = element.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const end = () => {
    start = null;
    dragged = false;
    gestures.cancel();
  };

  element.addEventListener("pointerdown", (event) => {
    if (isForeign(event)) return;
    const { x, y } = place(event);
    gestures.point(x, y);
    if (event.pointerType === "touch" || event.button !== 0) return;
    start = x;
    element.setPointerCapture(event.pointerId);
  }, { signal });
  element.addEventListener("pointermove", (event) => {
    const { x, y } = place(event);
    gestures.point(x, y);
    if (start === null) return;
    dragged ||= Math.abs(x - start) >= SHORTEST_DRAG_PX;
    if (dragged) gestures.dragging(start, x);
  }, { signal });
  element.addEventListener("pointerup", (event) => {
    const from = start;
    const selected = dragged;
    end();
    const { x, y } = place(event);
    if (from !== null && selected) gestures.select(from, x);
    else if (from !== null) gestures.pick(x, y);
  }, { signal });
  element.addEventListener("pointercancel", end, { signal });
  element.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch" && start === null) gestures.leave();
  }, { signal });
  element.addEventListener("dblclick", (event) => !isForeign(event) && gestures.reset(), { signal });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && start !== null) end();
  }, { signal });
}

/** Whether it happened in a part of the element that sees to its own gestures. @param {Event} event */
function isForeign(event) {
  return event.target instanceof Element && event.target.closest("[data-own-gestures]") !== null;
}
