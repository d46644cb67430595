"""Logs as lines: packed or not, in any encoding, with colours and progress bars, cut, damaged, or endless."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.lines import CHUNK_BYTES, MAX_LINE, LineSource
from gradsight_server.importers.opening import decoded, open_bytes, open_text, read_head, read_whole

TEXT = "step 1\nstep 2 äß 上\nstep 3\n"


def lines(raw: bytes, keep: Callable[[str], object] | None = None) -> list[tuple[int, str]]:
    return list(LineSource(io.BytesIO(raw), keep))


def test_lines_are_numbered_from_1_and_only_those_asked_for_are_given() -> None:
    assert lines(b"a\n\nb\r\nc") == [(1, "a"), (2, ""), (3, "b"), (4, "c")]
    assert lines(b"a\n\nb\r\nc", lambda line: line in "bc" and line) == [(3, "b"), (4, "c")]
    assert lines(b"") == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_any_usual_encoding_is_read(encoding: str, tmp_path: Path) -> None:
    raw = TEXT.encode(encoding)
    assert [line for _, line in lines(raw)] == TEXT.splitlines()
    assert decoded(raw) == TEXT
    (tmp_path / "log").write_bytes(raw)
    with open_text(tmp_path / "log") as file:
        assert file.read() == TEXT


def test_a_file_that_changes_its_encoding_is_read_through() -> None:
    both = TEXT.encode("utf-16") + b"step 4\nstep 5\n"
    assert [line for _, line in lines(both)] == [*TEXT.splitlines(), "step 4", "step 5"]
    both = b"step 1\n" + "step 2\nstep 3\n".encode("utf-16-le")
    assert [line for _, line in lines(both)] == ["step 1", "step 2", "step 3"]
    assert lines(b"step 1 \xff\xfe\xe4\nstep 2\n")[1] == (2, "step 2"), "what cannot be decoded spoils no other line"


def test_colours_go_and_states_of_a_progress_bar_are_lines_that_share_a_number() -> None:
    raw = (
        b"\x1b[32mstep 1\x1b[0m\n 0%|  | 0/9\r 1%|# | 1/9 loss=2\r\x1b[2K\n\x1b]0;title\x07step 2\n1/9\x08\x08\x082/9\n"
    )
    assert lines(raw) == [
        (1, "step 1"),
        (2, " 0%|  | 0/9"),
        (2, " 1%|# | 1/9 loss=2"),
        (3, "step 2"),
        (4, "1/9"),
        (4, "2/9"),
    ]


def test_lines_longer_than_a_piece_and_pieces_of_many_states_keep_their_numbers() -> None:
    state = b"x" * 99 + b"\r"
    found = lines(state * (3 * CHUNK_BYTES // 100) + b"\nend\n")
    assert found[-1] == (2, "end")
    assert {line for number, line in found if number == 1} == {"x" * 99}
    assert len(found) == 3 * CHUNK_BYTES // 100 + 1


def test_a_line_without_end_is_cut_and_said() -> None:
    source = LineSource(io.BytesIO(b"a\n" + b"x" * (3 * MAX_LINE) + b"\nb\n"))
    assert [len(line) for _, line in source] == [1, MAX_LINE, 1]
    assert source.num_lines == 3
    ((number, problem),) = source.problems
    assert (number, "longer than" in problem) == (2, True)


def zipped(raw: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a/", "")
        archive.writestr("a/small.txt", "x")
        archive.writestr("a/train.log", raw)
    return packed.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zipped])
def test_packed_files_are_told_by_their_content(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(pack(TEXT.encode()))
    with open_bytes(path) as file:
        assert [line for _, line in LineSource(file)] == TEXT.splitlines()
    assert read_head(path, 6) == b"step 1"
    assert read_whole(path) == TEXT.encode()


def test_a_cut_archive_gives_what_comes_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(gzip.compress(b"".join(b"step %d\n" % i for i in range(50_000)))[:50_000])
    with open_bytes(path) as file:
        source = LineSource(file)
        found = list(source)
    assert found[:2] == [(1, "step 0"), (2, "step 1")]
    ((number, problem),) = source.problems
    assert number == len(found)
    assert "too early" in problem
    assert read_whole(path).startswith(b"step 0\nstep 1\n")


@pytest.mark.parametrize(("raw", "said"), [(b"PK\x03\x04 no archive", "damaged"), (b"\x28\xb5\x2f\xfd....", "zstd")])
def test_what_cannot_be_unpacked_is_one_clear_line(raw: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(raw)
    with pytest.raises(NothingToReadError, match=said):
        open_bytes(path)


def test_missing_files_folders_and_too_large_ones_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NothingToReadError, match="no file"):
        open_bytes(tmp_path / "nope")
    with pytest.raises(NothingToReadError, match="folder"):
        open_bytes(tmp_path)
    path = tmp_path / "large"
    path.write_bytes(b"x" * 100)
    with pytest.raises(NothingToReadError, match="too large"):
        read_whole(path, max_bytes=99)
