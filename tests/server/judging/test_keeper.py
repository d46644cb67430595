"""How long the keeper rests: its share of the time, and no verdict much late."""

import pytest

from gradsight_server.judging.keeper import BUDGET, MOST_REST_S, rest_after


@pytest.mark.parametrize("worked_s", [0.001, 0.02, 0.5])
def test_judging_takes_its_budget_of_a_quiet_server(worked_s: float) -> None:
    rest_s = rest_after(worked_s, worked_s)
    assert worked_s / (worked_s + rest_s) == pytest.approx(BUDGET)


def test_a_thread_that_was_kept_waiting_rests_by_the_clock_on_the_wall_up_to_a_limit() -> None:
    assert rest_after(0.1, 0.01) == pytest.approx(0.1 * (1 / BUDGET - 1))
    assert rest_after(10.0, 0.01) == MOST_REST_S


def test_the_limit_does_not_let_judging_exceed_its_budget_of_the_processor() -> None:
    rest_s = rest_after(10.0, 0.5)
    assert rest_s > MOST_REST_S
    assert 0.5 / (0.5 + rest_s) == pytest.approx(BUDGET)
