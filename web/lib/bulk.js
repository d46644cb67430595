/** The same request for many runs, a few at a time. */

const AT_ONCE = 4;

/**
 * @template T
 * @param {T[]} items
 * @param {(item: T) => Promise<unknown>} work
 * @returns {Promise<{done: number, problems: string[]}>} what went wrong, each reason once
 */
export async function forEach(items, work) {
  const waiting = [...items];
  /** @type {Set<string>} */
  const problems = new Set();
  let done = 0;
  const worker = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
      try {
        await work(item);
        done++;
      } catch (error) {
        problems.add(error instanceof Error ? error.message : String(error));
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return { done, problems: [...problems] };
}
