"""Configuration as training programs print it: `clip_grad ..... 1.0`, `max_grad_norm=1.0`, `"gradient_clipping": 1.0`.

The names are those of many tools at once, since programs print each other's configuration; a format adds its own.
"""

import re
from collections.abc import Iterator, Mapping

from gradsight_server.importers.items import Setting

MAX_NORM = (
    "clip_grad",
    "clip_grad_norm",
    "clip_gradient",
    "clip_gradients",
    "clip_max_norm",
    "clip_norm",
    "grad_clip",
    "grad_clip_norm",
    "grad_clipping",
    "grad_norm_clip",
    "grad_norm_clipping",
    "gradient_clip",
    "gradient_clip_norm",
    "gradient_clip_val",
    "gradient_clipping",
    "gradient_clipping_norm",
    "max_grad_norm",
)
NAMES: Mapping[str, str] = {
    **dict.fromkeys(MAX_NORM, "max_norm"),
    "fp16": "fp16",
    "fp16_enabled": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "bfloat16_enabled": "bf16",
    "loss_scale_window": "growth_interval",
    "gradient_accumulation_steps": "accumulation_steps",
    "gradient_clip_algorithm": "clip_algorithm",
}
OFF = frozenset({"none", "null", "false", "off", "no"})
ON = frozenset({"true", "yes", "on"})
TEXTS = frozenset({"optimizer", "run_name", "clip_algorithm"})

_AS_PRINTED = (
    r"""(?<![\w.-])(--)?({names})(?![\w-])"""  # a name or a flag
    r"""(?:(?:["']?\s*[:=]\s*|\s+\.+\s+|(?(1)\s+|(?!)))["']?(?!--)([^\s,;"'()\[\]{{}}|]+))?"""  # and its value
)


class Printed:
    """Reads the settings with these names out of any line.

    Args:
        names: Our name by the log's, see `Setting`; `fp16` and `bf16` become the precision where they are on.
    """

    def __init__(self, names: Mapping[str, str] = NAMES) -> None:
        self._names = names
        longest_first = sorted(names, key=len, reverse=True)
        spelled = "|".join(re.escape(name).replace("_", "[_-]") for name in longest_first)
        self._pattern = re.compile(_AS_PRINTED.format(names=spelled), re.IGNORECASE)

    def read(self, at: int, line: str) -> Iterator[Setting]:
        """The settings in a line, which is best one known to hold some: this is slow."""
        for match in self._pattern.finditer(line):
            name = self._names[match[2].replace("-", "_").lower()]
            value = match[3] or ("on" if match[1] else "")
            if (setting := _setting(at, name, value, match[2])) is not None:
                yield setting


def _setting(at: int, name: str, text: str, source: str) -> Setting | None:
    """None where it says nothing: a precision that is off, a placeholder such as `auto`."""
    word = text.rstrip(".").lower()
    if name in ("fp16", "bf16"):
        return Setting(at, "precision", name, source) if word in ON else None
    if name in TEXTS:
        return Setting(at, name, text, source) if text[:1].isalpha() else None
    if word in OFF:
        return Setting(at, name, None, source)
    try:
        return Setting(at, name, float(text), source)
    except ValueError:
        return None
