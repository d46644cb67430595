"""How records reach a server: a small protocol, over HTTP or in memory; and how a spool is sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote

import httpx

from gradsight import connecting, door, spool, wire
from gradsight.errors import (
    ServerRefusedError,
    ServerRefusedTokenError,
    ServerUnreachableError,
    WireError,
)
from gradsight.frames import Frame
from gradsight.rows import Merger

CONNECT_WITHIN_S = 3.0
REFUSALS = (400, 404, 413, 415, 422)
"""What Gradsight answers to a request it will never take; any other server's word counts for nothing."""


class Transport(Protocol):
    """Where records go. Every method raises a TransportError where they do not arrive."""

    def put_run(self, run_id: str, body: bytes, *, timeout_s: float = 10.0) -> None: ...

    def post_batch(self, run_id: str, stream: str, body: bytes, *, timeout_s: float = 10.0) -> wire.Answer: ...

    def close(self) -> None: ...


class HttpTransport:
    """Records over HTTP, MessagePack in both directions.

    Raises:
        ConfigurationError: an address or a token that cannot be right. What is wrong around them shows with each
            request, as ServerUnreachableError: it may be mended while a training goes on.
    """

    def __init__(self, server: str, token: str | None = None) -> None:
        self._server = door.server(server)
        self._token = door.token(token)
        self._client: httpx.Client | None = None

    def put_run(self, run_id: str, body: bytes, *, timeout_s: float = 10.0) -> None:
        self._send("PUT", f"runs/{run_id}", body, timeout_s)

    def post_batch(self, run_id: str, stream: str, body: bytes, *, timeout_s: float = 10.0) -> wire.Answer:
        if not wire.is_stream_name(stream):  # from an older spool; on the way it would become another path
            raise ServerRefusedError(f"stream must be {wire.STREAM_RULE}, got {stream!r}.", status=422)
        response = self._send("POST", f"runs/{run_id}/streams/{quote(stream)}/batches", body, timeout_s)
        try:
            is_msgpack = response.headers.get("content-type", "").startswith(wire.CONTENT_TYPE_MSGPACK)
            return wire.decode(
                response.content, wire.Answer, wire.CONTENT_TYPE_MSGPACK if is_msgpack else wire.CONTENT_TYPE_JSON
            )
        except WireError as error:
            raise ServerUnreachableError(f"{self._server} does not answer as Gradsight: {error}") from error

    def _send(self, method: str, path: str, body: bytes, timeout_s: float) -> httpx.Response:
        if self._client is None:
            msgpack = wire.CONTENT_TYPE_MSGPACK.encode()
            headers = {b"Content-Type": msgpack, b"Accept": msgpack}
            self._client = connecting.client(self._server, self._token, headers=headers)
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_WITHIN_S))
        with connecting.explaining(self._server, timeout):
            response = self._client.request(method, f"{self._server}/api/v1/{path}", content=body, timeout=timeout)
        status = response.status_code
        if status == 200:
            return response
        reason = _reason(response)
        answered = f"{self._server} answered {status} {reason or response.reason_phrase}".rstrip()
        if status in (401, 403):
            raise ServerRefusedTokenError(answered)
        if status in REFUSALS and reason is not None:
            raise ServerRefusedError(answered, status=status)
        raise ServerUnreachableError(answered)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


@dataclass
class MemoryTransport:
    """A transport that keeps what it is given: for tests, and for looking at what a loop would send."""

    runs: dict[str, list[wire.RunRecord]] = field(default_factory=dict)
    batches: list[tuple[str, str, wire.Batch]] = field(default_factory=list)
    answer: Callable[[wire.Batch], wire.Answer] = lambda batch: wire.Answer(accepted_steps=len(batch.step))

    def put_run(self, run_id: str, body: bytes, *, timeout_s: float = 10.0) -> None:
        self.runs.setdefault(run_id, []).append(wire.decode(body, wire.RunRecord))

    def post_batch(self, run_id: str, stream: str, body: bytes, *, timeout_s: float = 10.0) -> wire.Answer:
        batch = wire.decode(body, wire.Batch)
        self.batches.append((run_id, stream, batch))
        return self.answer(batch)

    def close(self) -> None:
        """Nothing to let go of."""


def _reason(response: httpx.Response) -> str | None:
    """What one of Gradsight's own errors says, in a line; None of any other, which must not have data thrown away."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not {"error", "detail"} <= body.keys() or body["error"] == "NotFound":
        return None
    return f"{body['error']}: {' '.join(str(body['detail']).split())[:300]}"


def messages(frames: Sequence[Frame]) -> Iterator[tuple[Frame, list[Frame]]]:
    """(message to send, the frames it stands for): batches that follow one another go as one."""
    index = 0
    while index < len(frames):
        frame = frames[index]
        group = [frame]
        first = _batch(frame)
        if first is not None:
            merger = Merger(first)
            for following in frames[index + 1 :]:
                if following.kind != "batch" or (following.run_id, following.stream) != (frame.run_id, frame.stream):
                    break
                batch = _batch(following)
                if batch is None or not merger.takes(batch):
                    break
                group.append(following)
            if len(group) > 1:
                num_steps = sum(part.num_steps for part in group)
                frame = Frame("batch", frame.run_id, frame.stream, num_steps, wire.encode(merger.whole()))
        yield frame, group
        index += len(group)


def _batch(frame: Frame) -> wire.Batch | None:
    """The frame's batch; None where it is none, or one that only the server can refuse."""
    try:
        return wire.decode(frame.body, wire.Batch) if frame.kind == "batch" else None
    except WireError:
        return None


class Sent(NamedTuple):
    """What became of a message."""

    answer: wire.Answer | None
    """The server's last one to a batch, if it took any."""
    refused: list[tuple[Frame, ServerRefusedError]]
    """What of it the server will never take, and why."""


def send(transport: Transport, frame: Frame, parts: Sequence[Frame], *, record: bytes, timeout_s: float = 10.0) -> Sent:
    """Send one message; one that is refused again in the parts it stands for, so that a bad one takes no other along.

    Args:
        record: What introduces the run to a server that does not know it.

    Raises:
        TransportError: the server cannot be reached or refuses the token.
    """
    try:
        return Sent(_send(transport, frame, timeout_s), [])
    except ServerRefusedError as error:
        if error.status == 404 and frame.kind == "batch":
            transport.put_run(frame.run_id, record, timeout_s=timeout_s)
        elif len(parts) == 1:
            return Sent(None, [(frame, error)])
    answer, refused = None, []
    for part in parts:
        try:
            answer = _send(transport, part, timeout_s) or answer
        except ServerRefusedError as error:
            refused.append((part, error))
    return Sent(answer, refused)


def _send(transport: Transport, frame: Frame, timeout_s: float) -> wire.Answer | None:
    if frame.kind == "run":
        transport.put_run(frame.run_id, frame.body, timeout_s=timeout_s)
        return None
    return transport.post_batch(frame.run_id, frame.stream, frame.body, timeout_s=timeout_s)


@dataclass
class Report:
    """What `send_spooled` did."""

    num_runs: int = 0
    num_steps: int = 0
    num_refused: int = 0
    """Messages the server will never take; they are kept in the spool's `refused` folder."""
    num_damaged: int = 0
    """Stretches of the spool that could not be read back."""
    num_busy: int = 0
    """Spools whose process lives and sends them itself."""


def sending_spooled(spool_dir: Path | str, transport: Transport, report: Report) -> Iterator[None]:
    """Send what processes that are gone have left in this spool, in order, and remove it; pauses after each message.

    Raises:
        TransportError: the server cannot be reached or refuses the token; what was not sent stays.
    """
    run_ids: set[str] = set()
    for folder in spool.pending(spool_dir):
        leftover = spool.take(folder)
        if leftover is None:
            report.num_busy += 1
            continue
        with leftover:
            for frames in leftover.runs_of_frames():
                for frame, parts in messages(frames):
                    # A spool whose first message is damaged does not say which run it is of, but for its id.
                    _, refused = send(transport, frame, parts, record=wire.encode(wire.RunRecord()))
                    report.num_steps += frame.num_steps - sum(part.num_steps for part, _ in refused)
                    report.num_refused += len(refused)
                    for part, _ in refused:
                        spool.keep_refused(spool_dir, part)
                    run_ids.add(frame.run_id)
                    report.num_runs = len(run_ids)
                    yield
            report.num_damaged += leftover.num_damaged


def send_spooled(spool_dir: Path | str, transport: Transport) -> Report:
    """The same in one go; what was done."""
    report = Report()
    for _ in sending_spooled(spool_dir, transport, report):
        pass
    return report


__all__ = [
    "HttpTransport",
    "MemoryTransport",
    "Report",
    "Transport",
    "messages",
    "send",
    "send_spooled",
    "sending_spooled",
]
