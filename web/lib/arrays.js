/** Figure arrays as plain numbers, and finding a step in them; pure. */

/** @type {Record<string, {new (buffer: ArrayBuffer): ArrayLike<number>}>} */
const KINDS = {
  f8: Float64Array,
  f4: Float32Array,
  i4: Int32Array,
  i2: Int16Array,
  i1: Int8Array,
  u4: Uint32Array,
  u2: Uint16Array,
  u1: Uint8Array,
};

/** @param {string} base64 */
export function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** @param {AnyArray | undefined} array @returns {array is EncodedArray} */
function isEncoded(array) {
  return array !== undefined && !Array.isArray(array);
}

/**
 * Numbers of Plotly's `{dtype, bdata}` or of a plain list; a null is NaN.
 * @param {AnyArray | undefined} array
 * @returns {number[]}
 */
export function numbers(array) {
  if (!isEncoded(array)) return (array ?? []).map((value) => (value === null ? NaN : Number(value)));
  const kind = KINDS[array.dtype];
  if (!kind) throw new TypeError(`dtype must be one of ${Object.keys(KINDS).join(", ")}, got ${array.dtype}.`);
  return Array.from(new kind(bytesOf(array.bdata).buffer));
}

/**
 * Rows of a matrix: one encoded array with a shape, or a list of arrays.
 * @param {AnyArray | AnyArray[] | undefined} matrix
 * @returns {number[][]}
 */
export function rows(matrix) {
  if (!matrix) return [];
  if (Array.isArray(matrix)) return /** @type {AnyArray[]} */ (matrix).map(numbers);
  const [numRows, numColumns] = String(matrix.shape).split(",").map(Number);
  const flat = numbers(matrix);
  return Array.from({ length: numRows }, (_, i) => flat.slice(i * numColumns, (i + 1) * numColumns));
}

/** Texts of a plain list. @param {AnyArray | undefined} array @returns {string[]} */
export function words(array) {
  return isEncoded(array) ? numbers(array).map(String) : (array ?? []).map(String);
}

/**
 * Index of the last of the ascending `x` that is not above `step`; −1 where all are.
 * @param {number[]} x
 * @param {number} step
 */
export function indexAt(x, step) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The smallest and largest finite value over an index range, or null. @param {number[]} values @param {number} from @param {number} to @param {boolean} positive */
export function extent(values, from, to, positive) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = Math.max(0, from); i < Math.min(values.length, to); i++) {
    const value = values[i];
    if (!Number.isFinite(value) || (positive && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? /** @type {[number, number]} */ ([low, high]) : null;
}
