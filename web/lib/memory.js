/** What this browser remembers for the person: small choices. Where storage is barred, it forgets. */

/** @typedef {"language" | "theme" | "notify"} Choice */

/** @param {Choice} name @returns {string | null} */
export function remembered(name) {
  try {
    return localStorage.getItem(`gradsight.${name}`);
  } catch {
    return null;
  }
}

/** @param {Choice} name @param {string | null} value null forgets */
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`gradsight.${name}`);
    else localStorage.setItem(`gradsight.${name}`, value);
  } catch {
    // A private window, or storage that is barred: the choice holds for this page.
  }
}
