"""Columns a person names go over those a tool's format knows; steps and all else stay as the format reads them."""

from pathlib import Path

from tests.server.importers.kit import column, norms, only_part, read, steps

MEGATRON = (
    " iteration {i:8d}/    5000 | consumed samples: 640 |"
    " elapsed time per iteration (ms): 10.0 | learning rate: 1.0E-04"
    " | lm loss: 2.000000E+00 | loss scale: {scale} | grad norm: {i}.5 | my gn: {mine}.25 |"
    " number of skipped iterations:   {skipped} |\n"
)


def megatron() -> str:
    return "".join(
        MEGATRON.format(i=i, mine=i + 100, scale=1024.0 if i < 20 else 512.0, skipped=int(i == 20))
        for i in range(1, 60)
    )


def test_a_tools_format_keeps_its_steps_under_a_persons_columns(tmp_path: Path) -> None:
    plain = only_part(read(tmp_path, megatron()))
    for name in ("my gn", "grad norm"):
        log = read(tmp_path, megatron(), grad_norm_before_clip=name)
        part = only_part(log)
        assert log.format_name == "megatron"
        assert steps(part) == steps(plain) == list(range(1, 60))
        for kept in ("loss", "lr", "loss_scale", "skipped"):
            assert column(part, kept) == column(plain, kept)
        assert column(part, "loss_scale")[30] == 512.0
        assert norms(part) == (norms(plain) if name == "grad norm" else [i + 100.25 for i in range(1, 60)])


def test_a_step_a_person_names_goes_over_the_tools_own(tmp_path: Path) -> None:
    text = "".join(
        f"{{'loss': 2.0, 'grad_norm': {i}.5, 'my_gn': {i}.25, 'it': {i * 10}, 'epoch': {i / 50:.2f}}}\n"
        for i in range(1, 60)
    )
    part = only_part(read(tmp_path, text, step="it", grad_norm_before_clip="my_gn"))
    assert steps(part) == list(range(10, 600, 10))
    assert norms(part) == [i + 0.25 for i in range(1, 60)]


def test_names_on_other_lines_than_the_tools_are_read_there(tmp_path: Path) -> None:
    text = "".join(f"s:{i} trl:2.5 lr:0.0006 norm:{i}.5\nstep {i} mine:{i + 100}.25\n" for i in range(60))
    part = only_part(read(tmp_path, text, grad_norm_before_clip="mine"))
    assert steps(part) == list(range(60))
    assert norms(part) == [i + 100.25 for i in range(60)]
