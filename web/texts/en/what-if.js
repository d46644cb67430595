/** Another threshold, tried on the recorded norms. */

export default {
  "whatif.title": "What if",
  "whatif.line": "Threshold to try, max_norm",
  "whatif.line.value": "{threshold}, clips {share}",
  "whatif.drag": "Drag to try another threshold; double-click goes back",
  "whatif.recommended": "Try {range}",
  "whatif.recommended.why": "Clips 10–20 % of the newest steps shown",
  "whatif.reset": "Back",
  "whatif.reset.to": "Back to {threshold}",
  "whatif.wrong": "A threshold is a number above 0.",
  "whatif.before": "These figures are for {threshold}.",
  "whatif.clipped": "clipped",
  "whatif.coef": "mean coefficient",
  "whatif.spikes": "spikes caught",
  "whatif.spikes.none": "No spikes in these steps",
  "whatif.caught": "{clipped} of {all}",
  "whatif.now": " (now {value})",
  "whatif.notes": "Replayed on recorded norms; later norms would differ.",
  "whatif.notes.own": "This is the run’s own moving threshold, here at its newest value.",
  "whatif.notes.of": "Replayed on {count} recorded norms; later norms would differ.",
  "whatif.error": "No answer: {reason}",

  "histogram.label": "Histogram of {count} gradient norms",
  "histogram.label.share": "Histogram of {count} gradient norms, {share} of them above {threshold}",
  "histogram.above": "{share} above",
  "histogram.below": "{share} below",
};
