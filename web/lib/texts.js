/** Every text of the page, by key; one catalogue per language, English so far. */

import { verdictTexts } from "./verdict-texts.js";

const english = {
  ...verdictTexts,

  "app.name": "Gradsight",
  "nowhere.title": "No page here",
  "nowhere.words": "The address {path} is none of Gradsight’s.",
  "nowhere.link": "All runs",

  "connection.connecting": "Connecting…",
  "connection.live": "Live",
  "connection.lost": "Disconnected, trying again.",
  "connection.since": "Last contact {ago}.",

  "state.running": "running",
  "state.stalled": "stalled",
  "state.silent": "silent",
  "state.finished": "finished",
  "state.failed": "failed",
  "state.running.why": "Steps are coming in",
  "state.stalled.why": "The process is alive but has not made a step for a while",
  "state.silent.why": "Nothing heard from the training process for 30 s or more",
  "state.finished.why": "The training said it is done",
  "state.failed.why": "The training said it failed",

  "runs.title": "Runs",
  "runs.filter": "Filter by project or name",
  "runs.loading": "Loading runs…",
  "runs.none": "No run matches “{q}”.",
  "runs.more": "Show more runs",
  "runs.table": "Training runs",
  "runs.sort": "Sort",
  "runs.sort.severity": "Unhealthy first",
  "runs.sort.-started_at_s": "Newest first",
  "runs.sort.-last_seen_s": "Last seen first",
  "runs.sort.name": "By name",
  "runs.evidence": "{name}: {word}. Open the evidence.",
  "runs.error": "The runs could not be loaded.",
  "column.state": "State",
  "column.run": "Run",
  "column.step": "Step",
  "column.rate": "Rate",
  "column.clipping": "Clipping",
  "column.loss_scaling": "Loss scale",
  "column.nonfinite": "NaN and Inf",
  "column.norm": "Norm before clip",
  "column.norm.short": "Norm",
  "column.loss": "Loss",
  "column.seen": "Last seen",

  "first.title": "No runs yet",
  "first.words": "This page fills by itself as soon as a training reports here.",
  "first.python": "In your training script",
  "first.python.words": "monitor.step takes the place of backward, clipping and optimizer.step.",
  "first.curl": "Or from anything that speaks HTTP",
  "first.curl.words": "Where the server asks for a token, add -H 'Authorization: Bearer …'.",
  "copy": "Copy",
  "copy.done": "Copied",

  "run.loading": "Loading the run…",
  "run.missing": "There is no run {id}.",
  "run.error": "The run could not be loaded.",
  "run.deleted": "This run was deleted.",
  "run.back": "All runs",
  "run.step": "step {step}",
  "run.step.of": "step {step} of {total}",
  "run.no.steps": "no steps yet",
  "run.left": "{duration} left",
  "run.stream": "Stream",
  "run.attempt": "Attempt",
  "run.attempt.joined": "Newest at each step",
  "run.attempt.one": "Attempt {number}, {ago}",
  "run.dropped": "Telemetry was lost: {list}. The charts have gaps there.",
  "run.dropped.one": "{count} rows of attempt {number} ({reason})",
  "retry": "Try again",

  "fact.none": "no steps yet",
  "fact.norm": "Norm before clip",
  "fact.norm.threshold": "max_norm {max_norm}",
  "fact.norm.no.threshold": "no threshold recorded",
  "fact.norm.coef": "coefficient {coef}",
  "fact.clipped": "Clipped",
  "fact.clipped.of": "{clipped} of {all} steps",
  "fact.clipped.unknown": "no threshold recorded",
  "fact.skipped": "Skipped",
  "fact.skipped.of": "of {all} attempted ({share})",
  "fact.scale": "Loss scale",
  "fact.scale.none": "Off",
  "fact.scale.none.words": "no loss scaling",
  "fact.nonfinite": "NaN or Inf",
  "fact.nonfinite.none": "every norm was finite",
  "fact.nonfinite.some": "of {all} norms",
  "fact.loss": "Loss",
  "fact.loss.none": "not recorded",
  "fact.newest.none": "newest not finite",
  "fact.loss.words": "newest",

  "range.label": "Steps shown",
  "range.all": "All",
  "range.last": "Last {count}",
  "range.follow": "Follow",
  "range.follow.why": "Move on with the newest step",
  "range.zoomed": "Steps {first}–{last}",
  "range.reset": "Show all steps",

  "charts.loading": "Loading charts…",
  "charts.no.steps": "No steps yet. The charts appear with the first one.",
  "charts.plotly.failed": "The drawing library could not be loaded from the server. The numbers above stay live.",
  "charts.keys": "Charts by step. Left and right arrow keys move the cross-hair, plus and minus zoom, 0 shows all steps, Escape hides the cross-hair.",
  "charts.step": "step",
  "charts.hint.mouse": "Drag to zoom, double-click to show all",

  "chart.norm": "Norm before clip",
  "chart.clip_coef": "Clip coefficient",
  "chart.loss": "Loss",
  "chart.loss_scale": "Loss scale",
  "chart.layers": "Layers",
  "chart.layers.words": "norm by layer, log colour",
  "chart.empty.norm": "No gradient norms recorded in this range",
  "chart.empty.clip_coef": "No clip coefficient recorded in this range",
  "chart.empty.loss": "No loss recorded in this range",
  "chart.empty.loss_scale": "No loss scaling in this run",
  "chart.empty.layers": "No per-layer norms recorded in this range",
  "chart.error": "Could not be loaded: {reason}",

  "norm.mean": "mean",
  "norm.range": "smallest to largest of {bucket} steps",
  "norm.exact": "norm",
  "norm.threshold": "threshold max_norm",
  "norm.clipped": "clipped",
  "norm.skipped": "skipped",
  "norm.nonfinite": "NaN or Inf",
  "loss.lr": "learning rate",
  "layers.blank": "no finite norm",
  "layers.colours": "Colours from {low} to {high}",
  "legend": "What the marks mean",

  "reading.steps": "steps {first}–{last}",
  "reading.range": "{low} to {high}",
  "reading.max_norm": "max_norm {value}",
  "reading.lr": "lr {value}",
  "reading.clipped": "clipped",
  "reading.skipped": "skipped",
  "reading.nonfinite": "NaN or Inf",

  "setup.title": "Set-up",
  "setup.policy": "Clipping policy",
  "setup.policy.off": "off",
  "setup.precision": "Precision",
  "setup.scaler": "Loss scaler",
  "setup.scaler.off": "none",
  "setup.optimizer": "Optimizer",
  "setup.parameters": "Parameters",
  "setup.world": "Processes",
  "setup.versions": "Versions",
  "setup.started": "Started",
  "setup.tags": "Tags",
  "setup.id": "Run id",
  "setup.config": "Configuration",
};

/** @typedef {keyof typeof english} TextKey */

/** The text of a key that may have none. @param {string} key @returns {string | null} */
export function knownText(key) {
  return /** @type {Record<string, string>} */ (english)[key] ?? null;
}

/**
 * The text of a key with its `{places}` filled in; an unknown key shows itself, so that it is noticed and mended.
 * @param {TextKey} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  const text = english[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place));
}
