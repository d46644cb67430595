"""Which launch this process belongs to: its rank, how many ranks there are, and an id that all of them share.

torch.distributed is asked where the process has it at work, never imported; else what the launcher put into the
environment counts (torchrun's RANK, WORLD_SIZE, …).
"""

import hashlib
import os
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from gradsight import door

LAUNCH_NAMES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
)
"""What all ranks of a launch find in their environment alike."""

_num_attempts: Counter[str] = Counter()


def place() -> tuple[int, int]:
    """(rank, number of ranks)."""
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return _whole_from_environment("RANK", 0), max(1, _whole_from_environment("WORLD_SIZE", 1))


def new_attempt(of_run: str, *, all_ranks: bool) -> str:
    """Id of an attempt that begins now; in a process that resumes its own run it is another one each time."""
    _num_attempts[of_run] += 1
    return attempt_id(of_run, all_ranks=all_ranks, number=_num_attempts[of_run])


def attempt_id(of_run: str, *, all_ranks: bool, number: int = 1) -> str:
    """The launch's id: one for all its ranks, another after a restart.

    Ranks agree on it without waiting for each other: through torch.distributed's store, where the first to come sets
    it, else by what the launcher told them all alike. Two launches on several machines that a launcher tells nothing
    different (a fixed port, no id) look the same until torch.distributed is at work.
    """
    given = os.environ.get("GRADSIGHT_ATTEMPT_ID")
    if given:
        return door.word("GRADSIGHT_ATTEMPT_ID", given[:64], most=64)
    own = uuid.uuid4().hex
    if not all_ranks:
        return own
    return _agreed(f"gradsight/attempt/{of_run}/{number}", own) or _told(of_run, number) or own


def _agreed(key: str, own: str) -> str | None:
    """What the first rank to come has put into the launch's store, maybe this one."""
    distributed = _distributed()
    try:
        store = distributed.distributed_c10d._get_default_store() if distributed is not None else None
        return None if store is None else str(store.compare_set(key, "", own), "ascii")
    except (AttributeError, RuntimeError, ValueError):  # a store that cannot compare, or is gone
        return None


def _told(of_run: str, number: int) -> str | None:
    told = [os.environ.get(name) for name in LAUNCH_NAMES]
    if not any(told):
        return None
    world_size = os.environ.get("WORLD_SIZE")
    if world_size and os.environ.get("LOCAL_WORLD_SIZE") == world_size:  # one machine, one process that started all
        told.append(_parent())
    text = "\n".join(str(part) for part in (of_run, number, *told))
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _parent() -> str:
    """The process that started this one: its number, and where the system tells the moment it began."""
    number = os.getppid()
    try:
        began = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]  # field 22, see proc(5)
    except (OSError, IndexError):
        began = ""
    return f"{number} {began}"


def _distributed() -> Any:
    """torch.distributed where this process has joined others by it, else None."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _whole_from_environment(name: str, default: int) -> int:
    """A whole number a launcher has set; the default where it makes no sense."""
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default
