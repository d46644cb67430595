/** Which steps the charts show: all, the newest so many, or a stretch somebody zoomed into; pure. */

/** @type {View} */
export const ALL = { width: null, follow: true, first: null, last: null };

/** @param {View} view */
export function isZoomed(view) {
  return view.first !== null && view.last !== null;
}

/** The steps to ask figures for. @param {View} view @param {number | null} newest */
export function rangeToRead(view, newest) {
  if (isZoomed(view)) return { first_step: view.first, last_step: view.last };
  if (view.width === null || newest === null) return { first_step: null, last_step: null };
  return { first_step: Math.max(0, newest - view.width + 1), last_step: null };
}

/**
 * The first and last step on screen, of a run whose steps go from `oldest` to `newest`.
 * @param {View} view
 * @param {number} oldest
 * @param {number} newest
 * @returns {[number, number]}
 */
export function stepsOnScreen(view, oldest, newest) {
  if (view.first !== null && view.last !== null) return [view.first, view.last];
  const first = view.width === null ? oldest : Math.max(oldest, newest - view.width + 1);
  return [first, Math.max(first, newest)];
}

/**
 * The view of the steps somebody dragged over.
 * @param {number} from
 * @param {number} to
 * @returns {View}
 */
export function zoomTo(from, to) {
  const [low, high] = from < to ? [from, to] : [to, from];
  const first = Math.max(0, Math.round(low));
  return { width: null, follow: false, first, last: Math.max(first + 1, Math.round(high)) };
}

/**
 * The view of steps that a finding is about, with some of those before and after.
 * @param {number} first
 * @param {number} last
 * @param {number} newest
 * @returns {View}
 */
export function around(first, last, newest) {
  const margin = Math.max(20, Math.round((last - first) * 0.15));
  return zoomTo(first - margin, Math.max(Math.min(last + margin, newest), last));
}

/**
 * Following or not, over as many steps as are on screen now.
 * @param {View} view
 * @param {[number, number]} shown
 * @returns {View}
 */
export function toggleFollow(view, shown) {
  if (view.follow) return { width: null, follow: false, first: shown[0], last: shown[1] };
  return { width: shown[1] - shown[0] + 1, follow: true, first: null, last: null };
}

/** The view as it stands in the address: nothing, `last=1000`, or `steps=100-200`. @param {View} view */
export function toAddress(view) {
  return {
    last: view.width === null || isZoomed(view) ? null : String(view.width),
    steps: isZoomed(view) ? `${view.first}-${view.last}` : null,
  };
}

/** @param {URLSearchParams} address @returns {View} */
export function fromAddress(address) {
  const steps = /^(\d+)-(\d+)$/.exec(address.get("steps") ?? "");
  if (steps && Number(steps[1]) < Number(steps[2])) return zoomTo(Number(steps[1]), Number(steps[2]));
  const width = Number(address.get("last"));
  return Number.isInteger(width) && width > 0 ? { ...ALL, width } : ALL;
}
