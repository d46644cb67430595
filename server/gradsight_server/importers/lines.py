"""A log as numbered lines: without ANSI colours, a progress bar's states one by one, in bounded memory."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from io import BufferedIOBase
from itertools import islice

from gradsight_server.importers.items import Item, Point, Unread
from gradsight_server.importers.opening import DAMAGE, encoding_of

CHUNK_BYTES = 2**18
MAX_LINE = 2**20
"""Characters; of a longer line the rest is left out."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])")
_BACKSPACES = re.compile("\x08+")
_LAST_NUMBER = re.compile(r"\d(?:[.,](?P<decimals>\d*))?(?P<exponent>[eE][+-]?\d*)?$")


class LineSource:
    """The lines of a file, and what went wrong on the way.

    Args:
        file: Its bytes, unpacked. One that is followed blocks until more comes.
        keep: Which lines are given; all where None. Must be quick: it is asked of each.
        may_hold: Whether a text of many lines may hold one to be kept; quicker still.
    """

    def __init__(
        self,
        file: BufferedIOBase,
        keep: Callable[[str], object] | None = None,
        may_hold: Callable[[str], bool] | None = None,
    ) -> None:
        self._file = file
        self._keep = keep
        self._may_hold = may_hold
        self.num_lines = 0
        """Lines read so far, those not given included."""
        self._text, self._at = "", 0
        """Whole lines, each with its end, and where the next one begins."""
        self._lines: Iterator[str] = iter(())
        """Of the same text, those to come."""
        self._cut_line: int | None = None
        self.problems: list[tuple[int, str]] = []
        """(line, what is wrong) of what could not be read at all."""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Numbers count lines as an editor does: the states of a progress bar share one."""
        keep, may_hold = self._keep, self._may_hold
        for block in self._blocks():
            if may_hold is not None and not may_hold(block):
                self.num_lines += block.count("\n") + 1
                continue
            self._text = block + "\n"
            self._lines = iter(block.split("\n"))
            at = 0
            for line in self._lines:
                at += len(line) + 1
                self.num_lines += 1
                if "\r" in line:
                    self._at = len(self._text)  # nothing is to be taken from between two states
                    for state in line.split("\r"):
                        if state and (may_hold is None or may_hold(state)) and (keep is None or keep(state)):
                            yield self.num_lines, state
                elif may_hold is not None and not may_hold(line):
                    continue
                elif keep is None or keep(line):
                    self._at = at
                    yield self.num_lines, line
                    at = self._at

    def take(self, shape: re.Pattern[str], least: int) -> tuple[int, str]:
        """The text of the lines right after the one given last that all match: they are not given any more.

        Args:
            shape: Of any number of lines, each with its end.
            least: Fewer lines are left as they are.

        Returns:
            (how many lines, their text)
        """
        match = shape.match(self._text, self._at)
        text = match[0] if match is not None else ""
        num = text.count("\n")
        if num < least:
            return 0, ""
        self._at += len(text)
        self.num_lines += num
        next(islice(self._lines, num, num), None)
        return num, text

    def _blocks(self) -> Iterator[str]:
        """Pieces of text that are whole lines, without the end of the last; a line of many states in several pieces."""
        carried = before = ""
        is_cutting = False
        for text in _texts(self._file, self._note_damage):
            if is_cutting:
                end = text.find("\n")
                if end < 0:
                    continue
                text, is_cutting = text[end:], False
            text = carried + text
            end = text.rfind("\n")
            if end >= 0:
                before = text[text.rfind("\n", 0, end) + 1 : end]
                yield _plain(text[:end])
            elif (end := text.rfind("\r", 0, -1)) >= 0:
                yield _plain(text[:end])
                self.num_lines -= 1  # the line goes on
            elif len(text) > MAX_LINE:
                text, is_cutting = text[:MAX_LINE], True
                self._note(f"the line is longer than {MAX_LINE:,} characters; its end is left out")
            carried = text[end + 1 :]
        rest = _plain(carried)
        if _is_cut(rest, before):
            self._cut_line = self.num_lines + 1
        if rest.strip("\r"):
            yield rest

    def all_of(self, items: Iterable[Item]) -> Iterator[Item]:
        """What was read of these lines, without the point of a last line that is cut; then what went wrong."""
        for item in items:
            if isinstance(item, Point | Unread) and item.line == self._cut_line:
                item = Unread(item.line, "the last line is cut: it has no end, and its last number may go on")
            yield item
        yield from (Unread(*problem) for problem in self.problems)

    def _note(self, problem: str) -> None:
        self.problems.append((self.num_lines + 1, problem))

    def _note_damage(self, error: Exception) -> None:
        what = "ends too early" if isinstance(error, EOFError) else f"is damaged ({error})"
        self._note(f"the file {what}; what comes before is read")


def _is_cut(rest: str, before: str) -> bool:
    """Whether a last line without an end breaks off in a number: one with fewer digits than the line before it has."""
    mine, other = _LAST_NUMBER.search(rest), _LAST_NUMBER.search(before.rstrip("\r"))
    if mine is None:
        return False
    if rest[-1] in ".,eE+-":
        return True
    if other is None:
        return False
    is_shorter = len(mine["decimals"] or "") < len(other["decimals"] or "")
    return is_shorter or (other["exponent"] is not None and len(mine["exponent"] or "") < len(other["exponent"]))


def _plain(block: str) -> str:
    if "\0" in block or "\ufeff" in block:
        block = block.replace("\0", "").replace("\ufeff", "")
    if "\x08" in block:
        block = _BACKSPACES.sub("\r", block)  # how Keras goes back to the beginning of its bar
    if "\r" in block:
        block = block.replace("\r\n", "\n").removesuffix("\r")
    return _ANSI.sub("", block) if "\x1b" in block else block


def _texts(file: BufferedIOBase, on_damage: Callable[[Exception], None]) -> Iterator[str]:
    """The file's text in pieces as they come; one that turns from UTF-16 to UTF-8 on the way is read as both."""
    decoder: codecs.IncrementalDecoder | None = None
    encoding = "utf-8"
    try:
        while data := file.read1(CHUNK_BYTES):
            if decoder is None:
                encoding = encoding_of(data)
                decoder = codecs.getincrementaldecoder(encoding)("replace")
            if encoding != "utf-8" and (turn := _end_of_utf16(data, encoding)) is not None:
                text = decoder.decode(data[:turn], final=True)
                encoding, decoder = "utf-8", codecs.getincrementaldecoder("utf-8")("replace")
                yield text + decoder.decode(data[turn:])
            else:
                yield decoder.decode(data)
        if decoder is not None:
            yield decoder.decode(b"", final=True)
    except DAMAGE as error:
        on_damage(error)


def _end_of_utf16(data: bytes, encoding: str) -> int | None:
    """Where UTF-16 ends and another program has written UTF-8 behind it; None where it does not end."""
    turn = data.rfind(b"\0") + (2 if encoding == "utf-16-be" else 1)
    tail = data[turn:]
    if b"\n" not in tail[1:]:  # in UTF-16 a NUL goes with it, maybe in the next piece
        return None
    try:
        tail.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return turn
