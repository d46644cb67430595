"""Streams of groups: what a policy's groups record beside the stream they belong to, and what is judged there. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from gradsight.errors import ConfigurationError
from gradsight.policies import Groups, parse_policy
from gradsight_server.alerts.rules import Kind, Rule

JUDGED: frozenset[Kind] = frozenset({"over_clipping", "telemetry_loss"})
"""A group has a threshold of its own. All else it repeats of its stream: one NaN would be as many alerts as there are
groups. What a launch has lost is told of once, at whichever stream came first."""


def parents(stream: str) -> Iterator[tuple[str, str]]:
    """(stream, pattern) of whose group this stream could be; either may hold a slash itself."""
    for i, letter in enumerate(stream):
        if letter == "/" and 0 < i < len(stream) - 1:
            yield stream[:i], stream[i + 1 :]


def is_of_group(stream: str, policies: Mapping[str, object]) -> bool:
    """Whether a stream is of a group, by the policies' text forms of the run's streams: `gan/generator` is none where
    no stream `gan` clips in groups."""
    return any(pattern in _patterns(policies.get(parent)) for parent, pattern in parents(stream))


def rules_of_group(rules: Mapping[Kind, Rule]) -> dict[Kind, Rule]:
    """What of the rules in force is judged at a stream of a group."""
    return {kind: rule if kind in JUDGED else replace(rule, enabled=False) for kind, rule in rules.items()}


@lru_cache(maxsize=1024)
def _patterns(policy: object) -> frozenset[str]:
    try:
        found = parse_policy(policy) if isinstance(policy, str) else None
    except ConfigurationError:
        found = None  # written by a version that knew more policies than we do
    return frozenset(found.policies) if isinstance(found, Groups) else frozenset()
