// Before anything is painted: the theme. A classic script in the head, so that no page flashes in the wrong one.
// lib/theme.js goes on from here.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("gradsight.theme");
  } catch {
    // Storage is barred: what the system says holds.
  }
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
})();
