"""Titles and advice by code, variant and language; numbers are written so that a tired person can read them.

A text is a template: `{clip_fraction:percent}` writes a number of the evidence, `{names}` the layers or metrics. What
stands in `[[ ]]` is left out where one of its numbers is missing.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradsight_server.diagnosis.texts import en, zh

CATALOGUES = {"en": en.TEXTS, "zh": zh.TEXTS}
MAX_NAMES = 4
_WORDS = {
    "en": {
        "unknown": "an unknown number",
        "infinity": "infinity",
        "tiny": "less than 0.01 %",
        "and": ", ",
        "more": "{names} and {count:,} more",
    },
    "zh": {
        "unknown": "未知值",
        "infinity": "无穷大",
        "tiny": "不到 0.01 %",
        "and": "、",
        "more": "{names} 以及另外 {count:,} 个",
    },
}
"""What is not of one text."""

_OPTIONAL = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_FIELD = re.compile(r"\{(\w+)(?::[\w ]+)?\}")


@dataclass(frozen=True, slots=True)
class Text:
    title: str
    advice: str


def text_for(
    code: str, variant: str, *, evidence: Mapping[str, float], names: Sequence[str] = (), lang: str = "en"
) -> Text:
    """The words for a finding; English where there is no such language."""
    catalogue = CATALOGUES.get(lang, en.TEXTS)
    title, advice = catalogue.get(f"{code}.{variant}") or catalogue[code]
    lang = lang if lang in CATALOGUES else "en"
    values: dict[str, Any] = {name: Figure(value, lang) for name, value in evidence.items()}
    if names:
        values["names"] = _listed(names, lang)
    return Text(_filled(title, values, lang), _filled(advice, values, lang))


def _filled(template: str, values: Mapping[str, Any], lang: str) -> str:
    def optional(match: re.Match[str]) -> str:
        return match[1] if all(name in values for name in _FIELD.findall(match[1])) else ""

    return _OPTIONAL.sub(optional, template).format_map(_OrUnknown(values, lang))


class _OrUnknown(dict[str, Any]):
    """A number that could not be worked out must not break the sentence."""

    def __init__(self, values: Mapping[str, Any], lang: str) -> None:
        super().__init__(values)
        self._lang = lang

    def __missing__(self, name: str) -> "Figure":
        return Figure(math.nan, self._lang)


class Figure(float):
    """A number that knows how to be read: `percent`, `count`, `inverse`, `steps`, `steps were`, or three digits."""

    def __new__(cls, value: float, lang: str = "en") -> "Figure":
        made = super().__new__(cls, value)
        made._words = _WORDS[lang]
        return made

    _words: dict[str, str]

    def __format__(self, spec: str) -> str:
        if not math.isfinite(self):
            what = self._words["unknown" if math.isnan(self) else "infinity"]
            return f"{what} of {spec}" if spec not in ("", "percent", "count", "inverse") else what
        if spec == "percent":
            return _percent(float(self), self._words["tiny"])
        if spec == "count":
            return f"{round(float(self)):,}"
        if spec == "inverse":
            return format(Figure(1 / float(self) if self else math.inf))
        return _counted(round(float(self)), spec) if spec else _plain(float(self))


def _counted(number: int, plural: str) -> str:
    """`steps` or `steps were`, in the singular where there is one."""
    words = plural.split()
    if number == 1:
        words = ["was" if word == "were" else word.removesuffix("s") for word in words]
    return f"{number:,} {' '.join(words)}"


def _percent(fraction: float, tiny: str) -> str:
    percent = 100 * fraction
    if 0 < percent < 0.01:
        return tiny
    if percent >= 99.5 and fraction < 1:
        return f"{math.floor(percent * 10) / 10:g} %"
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.2g} %"


def _plain(number: float) -> str:
    size = abs(number)
    if size >= 1e6 or 0 < size < 1e-4:
        mantissa, _, exponent = f"{number:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if size >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def _listed(names: Sequence[str], lang: str) -> str:
    words = _WORDS[lang]
    shown = words["and"].join(names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return words["more"].format(names=shown, count=more) if more > 0 else shown
