"""Notification targets: the services that Apprise knows, by the URLs in the server's configuration."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gradsight_server.alerts.messages import Note, Waiting
from gradsight_server.alerts.rules import SEVERITIES, Severity
from gradsight_server.errors import SettingsError
from gradsight_server.settings import NotificationTarget

RENDER_MARKDOWN = ("discord", "guilded", "mattermost", "revolt", "rocketchat", "zulip")
"""Services that read Markdown also in what is sent to them as text."""


@dataclass(frozen=True, slots=True)
class Target:
    """One place that alerts are told to. What it is reached by stays in here."""

    target_id: str
    name: str
    service: str
    project: str
    """A pattern as for file names."""
    severity: Severity
    """Told are alerts of this severity or a worse one."""
    send: Callable[[Note, str], str | None]
    """Sends a message of a severity; None where that went well, else what went wrong."""

    def wants(self, message: Waiting) -> bool:
        is_grave = SEVERITIES.index(message.severity) >= SEVERITIES.index(self.severity)
        return is_grave and fnmatchcase(message.project, self.project)


def targets_of(configured: Sequence[NotificationTarget]) -> list[Target]:
    """The targets in a configuration.

    Raises:
        SettingsError: Apprise knows no service of that kind, its URL lacks something, or two have one name.
    """
    if not configured:
        return []
    import apprise  # late: half a second and 20 MB that only those who are told of alerts need

    asset = apprise.AppriseAsset(app_id="Gradsight", app_desc="Gradsight alerts", app_url="", plugin_paths=[])
    found: list[Target] = []
    for i, target in enumerate(configured):
        url = target.url.get_secret_value()
        service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
        if service is None:
            kind = re.match(r"\w+://", url)
            raise SettingsError(
                f"notifications[{i}]: Apprise cannot use this URL ({kind[0] if kind else 'it has no scheme'}…): "
                "the service is unknown to it, or the URL lacks a part; `apprise --details` lists what each needs."
            )
        name = target.name or _free_name(str(service.service_name), {other.name for other in found})
        if name in {other.name for other in found}:
            raise SettingsError(f"notifications[{i}]: two targets have the name {name!r}; give each its own.")
        identity = hashlib.blake2b(f"{url}\n{target.project}\n{target.severity}".encode(), digest_size=8).hexdigest()
        found.append(
            Target(identity, name, str(service.service_name), target.project, target.severity, _sender(service))
        )
    return found


def _free_name(service: str, taken: set[str]) -> str:
    number = 1
    while (name := service if number == 1 else f"{service} {number}") in taken:
        number += 1
    return name


def _sender(service: Any) -> Callable[[Note, str], str | None]:
    """Sends by this service of Apprise's, in the caller's thread."""
    import apprise

    kinds = {"critical": apprise.NotifyType.FAILURE, "warning": apprise.NotifyType.WARNING}
    sender = apprise.Apprise()
    sender.add(service)

    def send(note: Note, severity: str) -> str | None:
        body, body_format = body_for(service, note)
        kind = kinds.get(severity, apprise.NotifyType.INFO)
        try:
            result = sender.notify(body, title=note.title, notify_type=kind, body_format=body_format)
        except Exception as error:  # the boundary: a service of somebody else's must not end the thread that tells
            return f"{type(error).__name__}: {error}"
        if result:
            return None
        said = [str(entry.message) for outcome in result for entry in outcome.logs()]
        return said[-1] if said else "it could not be sent, and the service does not say why"

    return send


def body_for(service: Any, note: Note) -> tuple[str, Any]:
    """The message for one service, and the format that it is in: nothing in it is taken for markup.

    The link stays as it is: chats make links of what looks like one.
    """
    import apprise
    from apprise.conversion import text_to_markdown

    shown = service.resolve_format(apprise.NotifyFormat.TEXT)
    reads_markdown = type(service).__module__.rpartition("plugins.")[2].partition(".")[0] in RENDER_MARKDOWN
    if shown is not apprise.NotifyFormat.MARKDOWN and not (shown is apprise.NotifyFormat.TEXT and reads_markdown):
        return "\n".join((*note.lines, *((note.link,) if note.link else ()))), apprise.NotifyFormat.TEXT
    lines = [text_to_markdown(line).replace("<", r"\<") for line in note.lines]  # type: ignore[no-untyped-call]
    return "  \n".join((*lines, *((note.link,) if note.link else ()))), shown
