/** Handing a file to the person: a picture of a chart, its numbers. */

/** @param {string} address a data: or blob: URL @param {string} name */
function save(address, name) {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}

/** @param {string} text @param {string} name */
export function saveCsv(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  save(address, `${name}.csv`);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** @param {string} picture a data: URL @param {string} name */
export function savePng(picture, name) {
  save(picture, `${name}.png`);
}
