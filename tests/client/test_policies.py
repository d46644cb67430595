"""The policies as descriptions: what they refuse, their one text form, and what the hook asks of them."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradsight.errors import ConfigurationError
from gradsight.policies import (
    GlobalNorm,
    Groups,
    Policy,
    TensorAdaptive,
    TensorNorm,
    UnitNorm,
    Value,
    as_policy,
    clip_coef,
    moving_thresholds,
    parse_policy,
)
from gradsight.thresholds import Cosine, Ema, Percentile, Threshold, ZScore

CANONICAL: list[tuple[Policy, str]] = [
    (GlobalNorm(1.0), "global_norm(1.0)"),
    (GlobalNorm(2), "global_norm(2.0)"),
    (GlobalNorm(math.inf), "global_norm(inf)"),
    (GlobalNorm(1.0, norm_type=math.inf), "global_norm(1.0, norm_type=inf)"),
    (GlobalNorm(ZScore(z=2.5)), "global_norm(max_norm=zscore(z=2.5))"),
    (GlobalNorm(ZScore(max_norm=1)), "global_norm(max_norm=zscore(z=2.5, max_norm=1.0))"),
    (GlobalNorm(Ema(), norm_type=1), "global_norm(max_norm=ema(factor=1.5), norm_type=1.0)"),
    (TensorNorm(0.5), "tensor_norm(0.5)"),
    (TensorNorm(Percentile(history=50)), "tensor_norm(max_norm=percentile(q=10.0, history=50))"),
    (GlobalNorm(Cosine(5, 1, 9)), "global_norm(max_norm=cosine(start=5.0, end=1.0, total_steps=9))"),
    (Value(0.5), "value(0.5)"),
    (UnitNorm(), "unit_norm(clipping=0.01)"),
    (UnitNorm(exclude=("head.*",)), 'unit_norm(clipping=0.01, exclude=("head.*",))'),
    (UnitNorm(0.02, 1e-6, ("a", "b")), 'unit_norm(clipping=0.02, eps=1e-06, exclude=("a", "b"))'),
    (TensorAdaptive(), "tensor_adaptive(relative=1.04)"),
    (TensorAdaptive(warmup_steps=0), "tensor_adaptive(relative=1.04, warmup_steps=0)"),
    (
        Groups({"*router*": GlobalNorm(0.1), "*": GlobalNorm(1.0)}),
        'groups("*router*": global_norm(0.1), "*": global_norm(1.0))',
    ),
]


@pytest.mark.parametrize(("policy", "text"), CANONICAL, ids=[text for _, text in CANONICAL])
def test_each_policy_has_one_text(policy: Policy, text: str) -> None:
    assert str(policy) == text
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("1", GlobalNorm(1.0)),
        (" 1e-3 ", GlobalNorm(0.001)),
        ("inf", GlobalNorm(math.inf)),
        ("+.5", GlobalNorm(0.5)),
        ("zscore(z=2.5)", GlobalNorm(ZScore())),
        ("zscore()", GlobalNorm(ZScore())),
        ("zscore(3, 0.9, 10, none)", GlobalNorm(ZScore(3, 0.9, 10))),
        ("zscore(max_norm=None)", GlobalNorm(ZScore())),
        ("cosine(5, end=.5, total_steps=1_000)", GlobalNorm(Cosine(5, 0.5, 1000))),
        ("global_norm ( max_norm = 1 , norm_type = 2 , )", GlobalNorm(1.0)),
        ("global_norm(norm_type=inf, max_norm=1)", GlobalNorm(1.0, math.inf)),
        ("global_norm(percentile(50))", GlobalNorm(Percentile(50))),
        ("\n unit_norm(\n\texclude=['head.*', \"*.bias\"])\n", UnitNorm(exclude=("head.*", "*.bias"))),
        ("unit_norm(exclude=('head.*'))", UnitNorm(exclude=("head.*",))),
        ("unit_norm(exclude=())", UnitNorm()),
        (
            "groups('*router*': 0.1, '*': ema(),)",
            Groups({"*router*": GlobalNorm(0.1), "*": GlobalNorm(Ema())}),
        ),
        (r'groups("a\"b\\c": 1)', Groups({'a"b\\c': GlobalNorm(1.0)})),
    ],
)
def test_a_text_may_be_written_freely(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy


# Any policy there is


positive = st.floats(min_value=0, exclude_min=True, allow_nan=False)
finite = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
from_one = st.floats(min_value=1, allow_nan=False, allow_infinity=False)
decays = st.floats(min_value=0, max_value=1, exclude_max=True)
counts = st.integers(0, 10**15)
patterns = st.text(min_size=1, max_size=12)
threshold_kinds: st.SearchStrategy[Threshold] = st.one_of(
    st.builds(Cosine, finite, finite, counts.map(lambda count: count + 1)),
    st.builds(Ema, from_one, decays, counts),
    st.builds(Percentile, st.floats(0, 100), st.integers(1, 10_000_000)),
    st.builds(ZScore, finite, decays, counts, st.none() | positive),
)
max_norms = st.one_of(positive, threshold_kinds)
plain_policies: st.SearchStrategy[Policy] = st.one_of(
    st.builds(GlobalNorm, max_norms, positive),
    st.builds(TensorNorm, max_norms),
    st.builds(Value, positive),
    st.builds(UnitNorm, positive, finite, st.lists(patterns, max_size=3).map(tuple)),
    st.builds(TensorAdaptive, from_one, decays, counts, positive),
)
policies: st.SearchStrategy[Policy] = st.one_of(
    plain_policies, st.builds(Groups, st.dictionaries(patterns, plain_policies, min_size=1, max_size=4))
)


@given(policies)
@example(Groups({'"\\\n\0': UnitNorm(exclude=("'",))}))
def test_text_round_trips(policy: Policy) -> None:
    again = parse_policy(str(policy))
    assert again == policy
    assert hash(again) == hash(policy)
    assert str(again) == str(policy)


@given(policies)
def test_a_policy_can_be_copied_and_pickled(policy: Policy) -> None:
    assert copy.deepcopy(policy) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


names = st.sampled_from(["global_norm", "groups", "zscore", "ema", "max_norm", "exclude", "none", "nan"])
words = st.one_of(names, st.sampled_from(["1", "-2.5", "1e", '"*"']), st.sampled_from("'()[],=: \\é."))


@given(st.one_of(st.text(max_size=40), st.lists(words, max_size=20).map("".join)))
def test_any_text_is_a_policy_or_a_configuration_error(text: str) -> None:
    try:
        policy = parse_policy(text)
    except ConfigurationError:
        return
    assert parse_policy(str(policy)) == policy


KNOWN = "global_norm, tensor_norm, value, unit_norm, tensor_adaptive, groups, cosine, ema, percentile, zscore"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["the end", "character 1"]),
        ("   ", ["the end", "character 4"]),
        ("global_nrm(1)", [KNOWN, "'global_nrm'", "character 1"]),
        ("global_norm(max_norm=zscor(z=2))", [KNOWN, "'zscor'", "character 22"]),
        ("global_norm(1", ["','", "the end", "character 14"]),
        ("global_norm(1))", ["must end there", "character 15"]),
        ("global_norm(1) 2", ["must end there", "character 16"]),
        ("global_norm", ["'('", "the end", "character 12"]),
        ("global_norm()", ["global_norm must have max_norm", "character 1"]),
        ("global_norm(0)", ["max_norm must be positive, got 0", "character 1"]),
        ("global_norm(nan)", ["max_norm must be positive, got nan"]),
        ("global_norm(1, 2, 3)", ["takes max_norm, norm_type", "character 19"]),
        ("global_norm(max_norm=1, 2)", ["bare ones first", "character 25"]),
        ("global_norm(maxnorm=1)", ["takes max_norm, norm_type", "'maxnorm'", "character 13"]),
        ("global_norm(1, max_norm=2)", ["each once, got 'max_norm'", "character 16"]),
        ("global_norm(max_norm=)", ["must have a number", "')'", "character 22"]),
        ("global_norm('1')", ["max_norm must be a positive number, got '1'"]),
        ("global_norm(none)", ["max_norm must be a positive number, got None"]),
        ("global_norm(global_norm(1))", ["max_norm must be a positive number", "GlobalNorm"]),
        ('global_norm("*": 1)', ["no patterns", "character 13"]),
        ("groups(1)", ['"*router*"', "character 8"]),
        ("groups()", ["at least one pattern"]),
        ('groups("*": 1, "*": 2)', ["each pattern once", "'*'", "character 16"]),
        ('groups("*": groups("*": 1))', ["without groups of its own", "character 1"]),
        ('groups("*": none)', ["policies['*']"]),
        ("percentile(q=150)", ["q must be from 0 to 100, got 150", "character 1"]),
        ('groups("a": 1, "b": percentile(q=150))', ["q must be", "character 21"]),
        ('groups("a', ["closing quote", "character 8"]),
        ("global_norm(1; 2)", ["';'", "character 14"]),
        ("global_norm(1__0_)", ["must have a number"]),
        ("__import__('os').system('ls')", ["'.'", "character 17"]),
        ("none", [KNOWN, "None"]),
        ("'1.0'", [KNOWN]),
        ("unit_norm(exclude='head')", ["exclude must be a tuple of patterns", "'head'"]),
        ("unit_norm(exclude=(1))", ["a text in quotes", "character 20"]),
        ("unit_norm(exclude=('a' 'b'))", ["','", "character 24"]),
        ("ema(" * 50 + ")" * 50, ["nests deeper"]),
        ("1" * 70_000, ["at most 65,536 characters"]),
    ],
)
def test_a_wrong_text_says_what_is_wrong_and_where(text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_policy(text)
    for part in parts:
        assert part in str(caught.value)


def test_only_texts_are_parsed() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a text like .* got 1\.0"):
        parse_policy(1.0)  # type: ignore[arg-type]


# What cannot be right


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: GlobalNorm(-1.0), r"^max_norm must be positive, got -1\.0\.$"),
        (lambda: GlobalNorm(0), "max_norm .* 0"),
        (lambda: GlobalNorm(math.nan), "max_norm .* nan"),
        (lambda: GlobalNorm(True), "max_norm .* True"),
        (lambda: GlobalNorm("1.0"), "max_norm .* '1.0'"),  # type: ignore[arg-type]
        (lambda: GlobalNorm(None), "max_norm .* None"),  # type: ignore[arg-type]
        (lambda: GlobalNorm(1.0, norm_type=0), "norm_type .* 0"),
        (lambda: GlobalNorm(1.0, norm_type=Ema()), "norm_type .* Ema"),  # type: ignore[arg-type]
        (lambda: TensorNorm(0.0), "max_norm"),
        (lambda: Value(0), "clip_value must be positive, got 0"),
        (lambda: Value(-1), "clip_value"),
        (lambda: Value(Ema()), "clip_value must be a positive number, got Ema"),  # type: ignore[arg-type]
        (lambda: UnitNorm(clipping=0), "clipping"),
        (lambda: UnitNorm(eps=0.0), "eps"),
        (lambda: UnitNorm(exclude="head.*"), "exclude .* 'head"),  # type: ignore[arg-type]
        (lambda: UnitNorm(exclude=("head", 3)), "exclude"),  # type: ignore[arg-type]
        (lambda: UnitNorm(exclude=("",)), "exclude"),
        (lambda: TensorAdaptive(relative=0.9), r"relative must be from 1 on and finite, got 0\.9"),
        (lambda: TensorAdaptive(beta=1.0), "beta"),
        (lambda: TensorAdaptive(warmup_steps=-1), "warmup_steps"),
        (lambda: TensorAdaptive(warmup_steps=0.5), "warmup_steps"),  # type: ignore[arg-type]
        (lambda: TensorAdaptive(max_norm=0), "max_norm"),
        (lambda: TensorAdaptive(max_norm=ZScore()), "max_norm .* ZScore"),  # type: ignore[arg-type]
        (lambda: Groups({}), "at least one pattern"),
        (lambda: Groups([("*", GlobalNorm(1.0))]), "at least one pattern"),  # type: ignore[arg-type]
        (lambda: Groups({"": GlobalNorm(1.0)}), "policies"),
        (lambda: Groups({3: GlobalNorm(1.0)}), "policies"),  # type: ignore[dict-item]
        (lambda: Groups({"*": Groups({"*": GlobalNorm(1.0)})}), "without groups of its own"),
        (lambda: Groups({"*": None}), r"policies\['\*'\]"),  # type: ignore[dict-item]
        (lambda: Groups({"*": -1.0}), r"policies\['\*'\] must be positive, got -1\.0"),  # type: ignore[dict-item]
    ],
)
def test_arguments_that_cannot_be_right_are_refused(made: Callable[[], Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        made()


# What the hook asks


def test_a_number_and_a_threshold_stand_for_the_global_norm() -> None:
    policy = Groups({"*": GlobalNorm(1.0)})
    assert as_policy(None) is None
    assert as_policy(1) == GlobalNorm(1.0)
    assert as_policy(Ema()) == GlobalNorm(Ema())
    assert as_policy(policy) is policy
    for wrong in (0, -1.0, "1.0", True):
        with pytest.raises(ConfigurationError, match="clip must be"):
            as_policy(wrong)  # type: ignore[arg-type]


def test_only_the_global_norm_has_one_coefficient() -> None:
    assert {type(policy).__name__ for policy, _ in CANONICAL if policy.has_global_coef} == {"GlobalNorm"}


def test_the_first_pattern_that_matches_decides() -> None:
    groups = Groups({"*router*": 0.1, "*": 1.0, "*.head": 2.0})  # type: ignore[dict-item]
    assert groups.pattern_of("layers.0.router.weight") == "*router*"
    assert groups.pattern_of("model.head") == "*"
    assert Groups({"A*": GlobalNorm(1.0)}).pattern_of("a.weight") is None
    assert groups.pattern_of("embedding.weight", "router.weight") == "*router*"  # any name of a tied weight
    assert groups != Groups({"*": 1.0, "*router*": 0.1, "*.head": 2.0})  # type: ignore[dict-item]


def test_excluded_parameters_are_named_by_pattern() -> None:
    policy = UnitNorm(exclude=("head.*", "*.bias"))
    assert [policy.excludes(name) for name in ("head.weight", "body.bias", "body.weight")] == [True, True, False]
    assert policy.excludes("embedding.weight", "head.weight")  # any name of a tied weight


def test_moving_thresholds_are_found_in_groups_too_and_are_each_groups_own() -> None:
    shared = Ema()
    groups = Groups({"a": GlobalNorm(shared), "b": TensorNorm(shared), "c": shared, "d": Value(1.0)})  # type: ignore[dict-item]
    found = list(moving_thresholds(groups))
    assert found == [Ema(), Ema(), Ema()]
    assert len({id(threshold) for threshold in [shared, *found]}) == 4
    assert list(moving_thresholds(GlobalNorm(shared))) == [shared]
    assert not list(moving_thresholds(GlobalNorm(1.0)))
    assert not list(moving_thresholds(None))


def test_clip_coef_is_one_for_norms_that_are_not_finite() -> None:
    assert clip_coef(2.0, 1.0) == 1.0 / (2.0 + 1e-6)
    assert [clip_coef(norm, 1.0) for norm in (0.5, math.inf, math.nan)] == [1.0, 1.0, 1.0]
    assert clip_coef(2.0, math.inf) == 1.0
