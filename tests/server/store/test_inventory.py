"""What there is to choose from, and how much is stored."""

from gradsight_server.store import deletion, runs
from gradsight_server.store.inventory import projects, tags, totals
from tests.server.store.kit import RUN, Store


def test_projects_and_tags_are_counted_without_what_is_archived(store: Store) -> None:
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=0.0))
    for i, (project, words) in enumerate([("lm", ["a", "b"]), ("gan", ["b"]), ("lm", []), ("old", ["c"])], 1):
        store.put(f"{i:032x}", project=project, tags=words)
    store.send([0, 1, 2], run_id=f"{1:032x}")
    store.send([0], run_id=f"{1:032x}", stream="second")
    store.write(lambda conn: runs.patch_run(conn, f"{4:032x}", now_s=1.0, archived=True))
    assert store.read(projects) == [
        {"project": "lm", "num_runs": 2, "num_steps": 4},
        {"project": "gan", "num_runs": 1, "num_steps": 0},
    ]
    assert store.read(tags) == [{"tag": "b", "num_runs": 2}, {"tag": "a", "num_runs": 1}]
    assert store.read(totals) == {"num_runs": 4, "num_archived": 1, "num_steps": 4}
