"""Ranks for the tests of a module, started once."""

from collections.abc import Callable, Iterator

import pytest

from tests.client.distributed.ranks import Ranks, lineup

RanksOf = Callable[[int], Ranks]


@pytest.fixture(scope="module")
def ranks_of() -> Iterator[RanksOf]:
    """Gives that many ranks. They end with their module: even idle, each takes a twentieth of a core."""
    with lineup() as lines:
        yield lines.of


@pytest.fixture
def two_ranks(ranks_of: RanksOf) -> Ranks:
    return ranks_of(2)


@pytest.fixture
def four_ranks(ranks_of: RanksOf) -> Ranks:
    return ranks_of(4)
