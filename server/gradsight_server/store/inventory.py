"""What there is: projects, tags, and how much is stored."""

from collections import Counter
from typing import Any

from sqlalchemy import Connection, func, select

from gradsight_server.store.models import runs, streams


def projects(conn: Connection) -> list[dict[str, Any]]:
    """Each project with its runs that are not archived and the steps they made, the largest first."""
    num_steps = func.coalesce(func.sum(streams.c.num_steps), 0).label("num_steps")
    query = (
        select(runs.c.project, func.count(runs.c.run_id.distinct()).label("num_runs"), num_steps)
        .outerjoin(streams, streams.c.run_id == runs.c.run_id)
        .where(runs.c.archived_at_s.is_(None))
        .group_by(runs.c.project)
    )
    found = [
        {"project": row.project, "num_runs": row.num_runs, "num_steps": int(row.num_steps)}
        for row in conn.execute(query)
    ]
    return sorted(found, key=lambda item: (-item["num_runs"], item["project"]))


def tags(conn: Connection) -> list[dict[str, Any]]:
    """Each tag with how many runs that are not archived carry it, the commonest first."""
    of_runs = conn.scalars(select(runs.c.tags).where(runs.c.archived_at_s.is_(None)))
    counted = Counter(tag for carried in of_runs for tag in set(carried))
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [{"tag": tag, "num_runs": num_runs} for tag, num_runs in ordered]


def totals(conn: Connection) -> dict[str, int]:
    """How many runs there are, how many of them archived, and their steps."""
    num_runs, num_archived = conn.execute(
        select(func.count(), func.count(runs.c.archived_at_s)).select_from(runs)
    ).one()
    num_steps = conn.scalar(select(func.coalesce(func.sum(streams.c.num_steps), 0)))
    return {"num_runs": num_runs, "num_archived": num_archived, "num_steps": int(num_steps or 0)}
