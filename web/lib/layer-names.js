/** Names of layers in little room: what all have in common goes first, then the middle; pure. */

/** @param {string[]} names @param {number} most letters @returns {string[]} */
export function shortNames(names, most) {
  const head = commonParts(names.map((name) => name.split(".")));
  const tail = commonParts(names.map((name) => name.split(".").slice(head).reverse()));
  return names.map((name) => {
    if (name.length <= most) return name;
    const parts = name.split(".").slice(head);
    const own = (head ? "…" : "") + parts.join(".");
    if (own.length <= most || !tail) return cutInside(own, most);
    return cutInside(`${head ? "…" : ""}${parts.slice(0, -tail).join(".")}…`, most);
  });
}

/** How many parts all begin with, one of each left over. @param {string[][]} names */
function commonParts(names) {
  const [first, ...others] = names;
  const shortest = Math.min(...names.map((parts) => parts.length));
  if (!others.length) return 0;
  let count = 0;
  while (count < shortest - 1 && others.every((parts) => parts[count] === first[count])) count++;
  return count;
}

/** A name with its middle left out. @param {string} name @param {number} most letters */
export function cutInside(name, most) {
  const letters = [...name];
  if (letters.length <= most) return name;
  const head = Math.floor((most - 1) / 2);
  return `${letters.slice(0, head).join("")}…${letters.slice(head + 1 - most).join("")}`;
}
