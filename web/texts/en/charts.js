/** The charts of a run, their marks and readings. */

export default {
  "charts.loading": "Loading charts…",
  "charts.no.steps": "No steps yet. The charts appear with the first one.",
  "charts.plotly.failed": "The drawing library could not be loaded from the server. The numbers above stay live.",
  "charts.keys": "Charts by step. Left and right arrow keys move the cross-hair, plus and minus zoom, 0 shows all steps, Escape hides the cross-hair.",
  "charts.step": "step",
  "charts.hint.mouse": "Drag to zoom, double-click to show all",

  "chart.norm": "Norm before clip",
  "chart.clip_fraction": "Share clipped",
  "chart.clip_coef": "Clip coefficient",
  "chart.loss": "Loss",
  "chart.loss_scale": "Loss scale",
  "chart.update_ratio": "Update ÷ weights",
  "chart.layers": "Layers",
  "chart.layers.words": "norm by layer, log colour",
  "chart.empty.norm": "No gradient norms recorded in this range",
  "chart.empty.clip_fraction": "No clipping threshold recorded in this range",
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
  "norm.spike": "spike",
  "norm.skipped": "skipped",
  "norm.nonfinite": "NaN or Inf",

  "loss.lr": "learning rate",

  "loss_scale.headroom": "loss scale that would overflow",

  "clip_fraction.aim": "10–20 %",
  "clip_fraction.firm": "firm",
  "clip_fraction.too_tight": "too tight",

  "layers.dominant": "dominant layer",
  "layers.pick": "See one layer…",
  "layers.close": "Close the chart of {layer}",
  "layers.close.short": "Close",
  "layers.blank": "no finite norm",
  "layers.colours": "Colours from {low} to {high}",

  "legend": "What the marks mean",

  "reading.steps": "steps {first}–{last}",
  "reading.range": "{low} to {high}",
  "reading.max_norm": "max_norm {value}",
  "reading.lr": "lr {value}",
  "reading.clipped": "clipped",
  "reading.spike": "spike",
  "reading.skipped": "skipped",
  "reading.zero": "scale 0",
  "reading.headroom": "overflows at {value}",
  "reading.nonfinite": "NaN or Inf",
};
