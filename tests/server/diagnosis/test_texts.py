"""Every finding has words and a row in the table, and the documentation is that table."""

import re
from pathlib import Path

import numpy as np
import pytest

from gradsight_server.diagnosis import diagnose, rules
from gradsight_server.diagnosis.texts import CATALOGUES, Figure, text_for
from tests.server.diagnosis.kit import steps, usual_norms

ROOT = Path(__file__).parents[3]
SOURCES = (ROOT / "server" / "gradsight_server" / "diagnosis").glob("*.py")


def test_the_documentation_holds_the_table_of_the_code() -> None:
    assert "{" not in rules.as_markdown()
    assert rules.as_markdown() in (ROOT / "docs" / "findings.md").read_text()


@pytest.mark.parametrize("lang", CATALOGUES)
def test_each_code_of_the_table_has_a_text_and_each_text_a_code(lang: str) -> None:
    in_texts = {key.partition(".")[0] for key in CATALOGUES[lang]}
    assert in_texts == set(rules.BY_CODE)


def test_each_code_that_the_rules_name_is_in_the_table() -> None:
    text = "".join(path.read_text() for path in SOURCES if path.name not in ("rules.py", "diagnose.py"))
    named = set(re.findall(r'code="(\w+)"', text)) | set(re.findall(r'_found\(\s*"(\w+)"', text))
    verdicts = {code for code in rules.BY_CODE if code.startswith(("clipping_", "loss_scale_"))}
    assert named <= set(rules.BY_CODE)
    assert set(rules.BY_CODE) - named <= verdicts


@pytest.mark.parametrize("lang", CATALOGUES)
def test_texts_without_any_numbers_still_read(lang: str) -> None:
    for key in CATALOGUES[lang]:
        code, _, variant = key.partition(".")
        text = text_for(code, variant, evidence={}, lang=lang)
        assert text.title
        assert text.advice.strip()
        assert not re.search(r"\[\[|\]\]|\{|\}|\.\.|\S  [a-z]", text.title + text.advice), key


@pytest.mark.parametrize("lang", sorted(set(CATALOGUES) - {"en"}))
def test_each_language_says_what_english_says_with_the_same_numbers(lang: str) -> None:
    assert CATALOGUES[lang].keys() == CATALOGUES["en"].keys()
    for key, texts in CATALOGUES[lang].items():
        for text, english in zip(texts, CATALOGUES["en"][key], strict=True):
            assert numbers_of(text) == numbers_of(english), key
            assert text.count("[[") == text.count("]]"), key


def numbers_of(text: str) -> set[str]:
    """The names of the numbers that a text writes, and whether each may be missing."""
    optional = {name for part in re.findall(r"\[\[(.*?)\]\]", text, re.DOTALL) for name in re.findall(r"\{(\w+)", part)}
    return {f"{name}?" if name in optional else name for name in re.findall(r"\{(\w+)", text)}


def test_chinese_has_no_english_plurals() -> None:
    specs = {
        spec for texts in CATALOGUES["zh"].values() for text in texts for spec in re.findall(r"\{\w+:(.+?)\}", text)
    }
    assert specs <= {"percent", "count", "inverse"}
    names = [f"layer{i}" for i in range(9)]
    assert "layer3 以及另外 5 个" in text_for("layers_exploding", "", evidence={}, names=names, lang="zh").advice


def test_an_unknown_language_is_answered_in_english() -> None:
    rows = steps(usual_norms(), max_norm=0.1)
    assert diagnose(rows, lang="xx") == diagnose(rows, lang="en")


@pytest.mark.parametrize(
    ("number", "spec", "written"),
    [
        (0.953, "percent", "95 %"),
        (0.9996, "percent", "99.9 %"),
        (1.0, "percent", "100 %"),
        (0.0123, "percent", "1.2 %"),
        (0.0, "percent", "0 %"),
        (1e-6, "percent", "less than 0.01 %"),
        (12400, "count", "12,400"),
        (20.13, "", "20.1"),
        (65536, "", "65,536"),
        (3.274e6, "", "3.27e6"),
        (1e30, "", "1e30"),
        (6.1e-5, "", "6.1e-5"),
        (0.05, "inverse", "20"),
        (np.nan, "", "an unknown number"),
    ],
)
def test_numbers_are_written_to_be_read(number: float, spec: str, written: str) -> None:
    assert format(Figure(number), spec) == written


def test_many_names_are_cut_short() -> None:
    names = [f"layer{i}" for i in range(9)]
    advice = text_for("layers_exploding", "", evidence={}, names=names).advice
    assert "layer0, layer1, layer2, layer3 and 5 more" in advice
