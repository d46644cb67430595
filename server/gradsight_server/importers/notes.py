"""What a person should know of how a log was read, in sentences."""

import math
from collections.abc import Iterator

from gradsight_server.importers.assembly import Assembly
from gradsight_server.importers.items import Meaning, Unread

MAX_SHOWN = 5


def notes_of(assembly: Assembly) -> list[str]:
    """Where thresholds come from, what numbers are, what was put right, what could not be read."""
    return list(
        dict.fromkeys(
            " ".join(note.split())
            for note in [
                *_thresholds(assembly),
                *map(_meaning, assembly.told.meanings),
                *_numbering(assembly),
                *_corrections(assembly),
                *_ranks(assembly),
                *_unread(assembly),
            ]
        )
    )


def _thresholds(assembly: Assembly) -> Iterator[str]:
    if assembly.cleaning.max_norm is not None:
        return
    for settings in assembly.told.settings:
        setting = settings.find("max_norm")
        if setting is None or isinstance(setting.value, str):
            continue
        where = f"{setting.source}, line {setting.line}" if setting.line else setting.source
        if setting.value is None or not setting.value > 0:
            yield f"Clipping is off by the log's configuration ({where})."
        elif settings.clips_by_value():
            yield f"Each element is clipped to {setting.value:g} by the log's configuration ({where}), not the norm."
        else:
            yield f"max_norm {setting.value:g} is taken from the log's configuration ({where})."
    if num := assembly.cleaning.counts["threshold_from_coef"]:
        yield f"max_norm is worked out from the clip ratio and the norm of {_lines(num)}."


def _meaning(meaning: Meaning) -> str:
    parts = []
    if meaning.stage == "after_clip":
        parts.append("taken after clipping")
    elif meaning.stage == "unknown" and meaning.column == "grad_norm_before_clip":
        parts.append("logged without saying whether it is before or after clipping; it is taken as before")
    if meaning.is_scaled:
        parts.append("still multiplied by the loss scale")
    if meaning.averaged_over_steps is not None:
        steps = meaning.averaged_over_steps
        parts.append("a mean over several steps" if math.isnan(steps) else f"a mean over {steps:g} steps")
    if meaning.is_per_epoch:
        parts.append("one value an epoch")
    if meaning.significant_digits is not None:
        parts.append(f"rounded to {meaning.significant_digits} digits")
    said = f"{meaning.source} is {', '.join(parts)}." if parts else f"{meaning.source}:"
    return f"{said} {meaning.remark}".strip()


def _numbering(assembly: Assembly) -> Iterator[str]:
    remarks = assembly.placing.remarks
    if (num := remarks["unnumbered"]) and num >= assembly.told.num_rows:
        yield "The log has no step numbers; its points are counted from 0."
    elif num:
        yield f"{_lines(num)} without a step number: counted on from the one before."
    if num := remarks["odd_steps"]:
        yield f"{_lines(num)} with a step that is no whole number from 0 on: counted on from the one before."
    if remarks["rounded"]:
        yield "Step numbers are rounded in this log; the steps in between are counted by their usual distance."
    if remarks["per_epoch"]:
        yield "Steps are counted anew in each epoch; they are counted through here."
    for turn in assembly.placing.turns[:MAX_SHOWN]:
        at = f"line {turn.line}"
        if turn.kind == "run":
            yield f"Another run begins at {at}."
        elif turn.kind == "resume":
            yield f"Steps go back from {turn.before:,} to {turn.after:,} at {at}: another attempt at the run."
        else:
            yield f"Another launch goes on with step {turn.after:,} at {at}."
    if (more := len(assembly.placing.turns) - MAX_SHOWN) > 0:
        yield f"There are {more:,} more places where a run or an attempt begins."
    if num := assembly.told.num_left_out:
        yield f"{_lines(num)} of more runs or streams than are taken from one log are left out."


def _corrections(assembly: Assembly) -> Iterator[str]:
    counts = assembly.cleaning.counts
    if num := counts["norm_placeholder"]:
        yield f"The norm is 0 on {_lines(num)} while the loss moves: a placeholder, taken as not recorded."
    if num := counts["norm_negative"]:
        yield f"The norm is negative on {_lines(num)}: a placeholder, taken as not recorded."
    if num := counts["norm_not_finite"]:
        yield f"The norm is -1 on {_lines(num)}, which is how DeepSpeed writes one that is not finite."
    if num := counts["norm_stale"]:
        yield f"On {_lines(num)} a skipped step repeats the norm before it, which says nothing of that step."
    if num := counts["norm_unscaled"]:
        yield f"The norm of {_lines(num)} was divided by the loss scale."
    if num := counts["scale_placeholder"]:
        yield f"The loss scale is 0 or negative on {_lines(num)}: a placeholder, taken as not recorded."
    if num := counts["coef_absent"]:
        yield f"The clip ratio is logged only where it clips; {_lines(num)} without it count as not clipped."


def _ranks(assembly: Assembly) -> Iterator[str]:
    copies = assembly.ranks.num_copies + assembly.placing.remarks["copies"]
    if assembly.ranks.ranks:
        yield f"{len(assembly.ranks.ranks) + 1} ranks wrote this log; where they differ, it is shown as spread."
    elif copies:
        yield f"{_lines(copies)} by other ranks or loggers repeat what a step has already."
    for rank, (num, step) in sorted(assembly.ranks.nonfinite.items())[:MAX_SHOWN]:
        lines = f"{_lines(num)} (the first at step {step:,})"
        yield f"The norm of rank {rank} is not finite on {lines} where that of the main rank is."
    if num := assembly.placing.remarks["again"]:
        yield (
            f"{_lines(num)} tell of a step again, with other numbers and no rank: the last line of a step is kept, "
            "of its norms one that is not finite."
        )


def _unread(assembly: Assembly) -> Iterator[str]:
    num = assembly.told.num_unread
    if not num:
        return
    shown = "; ".join(map(_place, assembly.told.unread[:MAX_SHOWN])) + ("; …" if num > MAX_SHOWN else "")
    yield f"{_lines(num)} could not be read: {shown}."


def _place(unread: Unread) -> str:
    why = " ".join(unread.why.split()).rstrip(".")
    why = why if len(why) <= 160 else why[:157] + "…"
    return f"line {unread.line:,}, {why}" if unread.line else why


def _lines(num: int) -> str:
    return f"{num:,} line{'s' * (num != 1)}"
