"""The id of a run that was deleted is free at once for whoever creates a run, however much of the old one is left."""

import pytest

from gradsight_server.store import deletion
from tests.server.api.kit import RUN, Running


def test_a_run_is_created_again_while_the_old_one_still_goes(
    run_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_server.send({"step": list(range(300)), "loss": [1.0] * 300})
    monkeypatch.setattr(deletion, "SLICE_ROWS", 10)
    monkeypatch.setattr(deletion, "sweep", lambda _: 0)
    assert run_server.client.delete(f"/api/v1/runs/{RUN}").status_code == 204
    assert run_server.put(name="again")["num_steps"] == 0
    run_server.send({"step": [0], "loss": [1.0]})
    assert run_server.get(f"runs/{RUN}")["num_steps"] == 1
