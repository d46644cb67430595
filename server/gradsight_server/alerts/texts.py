"""What an alert says, in a line: from its kind and its numbers. The page has texts of its own, from the same. Pure."""

from collections.abc import Mapping

from gradsight_server.alerts.rules import Kind

Numbers = Mapping[str, float]

TITLES: dict[Kind, str] = {
    "dead_run": "The run is dead: {num_steps:.0f} steps in a row without a finite gradient or loss{where}",
    "nonfinite_burst": "NaN or Inf in {num_steps:.0f} steps{where}",
    "loss_nonfinite": "The loss was NaN or Inf in {num_steps:.0f} steps",
    "scale_below_one": "The loss scale has fallen to {scale:.3g}, below {border:g}",
    "skip_streak": "{num_steps:.0f} optimizer steps in a row were skipped",
    "scale_falling": "The loss scale fell {ratio:.3g}-fold within {window:.0f} steps, to {scale:.4g}",
    "skip_rate": "{rate:.0%} of the newest {window:.0f} optimizer steps were skipped",
    "norm_spike": "The gradient norm rose to {norm:.4g}, {ratio:.3g} times the usual {median:.4g}",
    "over_clipping": "{fraction:.0%} of {window:.0f} steps were clipped, to {mean_coef:.0%} of their norm on average",
    "telemetry_loss": "{num_rows:.0f} rows of telemetry were lost",
    "silent_run": "No step for {silence:.0f} s",
}
CRASHED = "Nothing was heard for {silence:.0f} s: the process has crashed, or its machine cannot be reached"
STALLED = "No step for {silence:.0f} s, but the process is alive: it hangs, waits, or validates"


def title(kind: Kind, evidence: Numbers, layer: str | None = None) -> str:
    """The alert in a line."""
    text = TITLES[kind]
    if kind == "silent_run":
        text = CRASHED if evidence.get("is_crashed") else STALLED
    return text.format(where=f", first in {layer}" if layer else "", **evidence)
