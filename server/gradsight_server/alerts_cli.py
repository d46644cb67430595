"""`gradsight alerts test`: has a server send a test to its notification targets, and says what became of it."""

from gradsight_server.asking import post_json
from gradsight_server.cli import complain

TIMEOUT_S = 30.0
"""The server gives each target fifteen seconds, all at once."""
NO_TARGETS = (
    "the server has no notification targets: start it with GRADSIGHT_NOTIFICATIONS, "
    "say GRADSIGHT_NOTIFICATIONS='slack://… mailto://…'."
)


def test_targets(server: str, token: str | None, *, name: str | None) -> int:
    """Prints a line for each target; the exit code."""
    body = {} if name is None else {"name": name}
    answer = post_json(server, token, "notification-targets/test", body, timeout_s=TIMEOUT_S)
    items = answer["items"]
    if not items:
        return complain(NO_TARGETS, exit_code=1)
    for item in items:
        outcome = f"sent in {item['duration_s']:.1f} s" if item["ok"] else f"failed: {item['error']}"
        print(f"{item['name']}: {outcome}")
    return 0 if all(item["ok"] for item in items) else 1
