/** Pointer gestures on the charts: hovering, dragging over a stretch, going back to all. Positions in pixels of the element. */

/** A hand trembles: a shorter drag is a click. */
const SHORTEST_DRAG_PX = 5;
/** Two fingers nearer than this say nothing about a zoom. */
const SHORTEST_PINCH_PX = 24;

/**
 * @typedef {object} Gestures
 * @property {(x: number, y: number) => void} point at a place
 * @property {() => void} leave
 * @property {(from: number, to: number) => void} dragging
 * @property {(from: number, to: number) => void} select a stretch
 * @property {(x: number, y: number) => void} pick a place
 * @property {(before: [number, number], after: [number, number]) => void} pinch with two fingers, from two places to two others
 * @property {() => void} cancel a drag
 * @property {() => void} reset
 */

/**
 * A mouse or pen points by hovering and selects by dragging; a finger points by touching and moving sideways, its
 * upward moves scroll the page (`touch-action: pan-y`), two fingers zoom, a tap picks.
 * @param {HTMLElement} element
 * @param {Gestures} gestures
 * @param {AbortSignal} signal
 */
export function listenForGestures(element, gestures, signal) {
  /** @type {number | null} */
  let start = null;
  let dragged = false;
  /** Fingers on the charts: where each came down, and where it is. @type {Map<number, {from: {x: number, y: number}, x: number}>} */
  const fingers = new Map();
  let pinched = false;
  const place = (/** @type {PointerEvent} */ event) => {
    const { left, top } = element.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const end = () => {
    start = null;
    dragged = false;
    gestures.cancel();
  };

  const lift = (/** @type {PointerEvent} */ event) => {
    const both = [...fingers.values()];
    const lifted = fingers.get(event.pointerId);
    if (lifted) lifted.x = place(event).x;
    fingers.delete(event.pointerId);
    if (both.length === 2) {
      const [a, b] = both.sort((one, other) => one.from.x - other.from.x);
      const isWide = b.from.x - a.from.x >= SHORTEST_PINCH_PX && b.x - a.x >= SHORTEST_PINCH_PX;
      if (isWide) gestures.pinch([a.from.x, b.from.x], [a.x, b.x]);
    } else if (both.length === 1 && !pinched) {
      const { x, y } = place(event);
      const [{ from }] = both;
      if (Math.hypot(x - from.x, y - from.y) < 2 * SHORTEST_DRAG_PX) gestures.pick(x, y);
    }
    if (!fingers.size) pinched = false;
  };

  element.addEventListener("pointerdown", (event) => {
    if (isForeign(event)) return;
    const { x, y } = place(event);
    gestures.point(x, y);
    if (event.pointerType === "touch") {
      fingers.set(event.pointerId, { from: { x, y }, x });
      pinched = fingers.size > 1;
      return;
    }
    if (event.button !== 0) return;
    start = x;
    element.setPointerCapture(event.pointerId);
  }, { signal });
  element.addEventListener("pointermove", (event) => {
    const { x, y } = place(event);
    const finger = fingers.get(event.pointerId);
    if (finger) finger.x = x;
    if (fingers.size < 2) gestures.point(x, y);
    if (start === null) return;
    dragged ||= Math.abs(x - start) >= SHORTEST_DRAG_PX;
    if (dragged) gestures.dragging(start, x);
  }, { signal });
  element.addEventListener("pointerup", (event) => {
    if (event.pointerType === "touch") {
      lift(event);
      return;
    }
    const from = start;
    const selected = dragged;
    end();
    const { x, y } = place(event);
    if (from !== null && selected) gestures.select(from, x);
    else if (from !== null) gestures.pick(x, y);
  }, { signal });
  element.addEventListener("pointercancel", (event) => {
    fingers.delete(event.pointerId);
    end();
  }, { signal });
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
