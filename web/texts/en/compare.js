/** Several runs side by side. */

export default {
  "compare.title": "Compare",
  "compare.loading": "Loading the runs…",
  "compare.error": "The runs could not be loaded.",
  "compare.few": "Pick two to eight runs: here, or by their boxes in the list of runs.",
  "compare.empty": "Recorded by none of these runs in this range",
  "compare.align": "Align the runs by",
  "compare.align.step": "By step",
  "compare.align.time": "By time",
  "compare.keys": "Charts of all runs. Drag to zoom; left and right arrow keys move the cross-hair, 0 shows all steps.",
  "compare.chart": "{name}, {low} to {high}: {runs}",
  "compare.add": "Add a run by name or id",
  "compare.add.do": "Add",
  "compare.add.unknown": "Choose a run of the list, or paste its id.",
  "compare.out": "Take {name} out of the comparison",
  "compare.facts": "step {step} · norm {norm} · loss {loss}",
  "compare.settings": "What differs",
  "compare.settings.all": "Show all",
  "compare.settings.same": "All recorded settings are the same.",
  "compare.settings.none": "These runs recorded no settings.",
  "compare.setting": "Setting",
};
