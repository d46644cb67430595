/** What an alert says, from its kind and its numbers; pure. */

import { integer, number, percent } from "./format.js";
import { runPath } from "./router.js";
import { knownText, t } from "./texts.js";

const SHARES = ["rate", "fraction", "mean_coef"];
const COUNTS = ["num_steps", "num_rows", "window", "silence"];

/** In the language of the page; the server's words where a number is missing. @param {RunAlert} alert */
export function alertTitle({ kind, evidence, layer, title }) {
  const key = kind === "silent_run" ? `alert.silent_run.${evidence.is_crashed ? "crashed" : "stalled"}` : `alert.${kind}`;
  const template = knownText(key);
  if (!template) return title;
  const places = [...template.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
  if (places.some((name) => typeof evidence[name] !== "number")) return title;
  const values = Object.fromEntries(places.map((name) => [name, written(name, /** @type {number} */ (evidence[name]))]));
  const words = t(/** @type {import("./texts.js").TextKey} */ (key), values);
  return layer ? t("alert.layer", { title: words, layer }) : words;
}

/** @param {string} name @param {number} value */
function written(name, value) {
  if (SHARES.includes(name)) return percent(value);
  return COUNTS.includes(name) ? integer(Math.round(value)) : number(value);
}

/** Where an alert's steps are seen. @param {RunAlert} alert */
export function alertPath({ run_id, first_step, last_step, stream }) {
  const query = new URLSearchParams(stream && stream !== "main" ? { stream } : {});
  if (first_step !== null) {
    const last = last_step ?? first_step;
    const margin = Math.max(20, last - first_step);
    query.set("steps", `${Math.max(0, first_step - margin)}-${last + margin}`);
  }
  return query.size ? `${runPath(run_id)}?${query}` : runPath(run_id);
}

/** @param {RunAlert} alert */
export function alertKey({ run_id, id }) {
  return `${run_id}/${id}`;
}
