"""Others' names for our columns, and numbers as they write them: what is surely ours is taken, nothing else is."""

import math
from typing import Any

import pytest

from gradsight import wire
from gradsight_server.errors import SettingsError
from gradsight_server.importers.mapping import parse_map
from gradsight_server.importers.names import chosen, column_of, is_after_clip, setting_of, stream_of
from gradsight_server.importers.numbers import number

NORMS = (
    "grad_norm", "train/grad_norm", "train_grad_norm", "optim/total_grad_norm", "gnorm", "global_grad_norm",
    "grad/norm", "gradient norm",
    "GradNorm", "gradNorm", "gradient_norm", "grad_2.0_norm_total", "actor/grad_norm", "total_norm",
    "train/global_grad_norm", "grad_norm/all", "l2_norm_grad", "grad_l2_norm", "Train Grad Norm", "avg_grad_norm",
    "grad_norm_before_clip", "optim/grad_norm", "grad_norm_preclip", "grad-norm",
)  # fmt: skip
NO_NORMS = (
    "layers.0.attn/grad_norm", "grad_2.0_norm_fc.weight", "grad_norm/encoder", "grad_norm_percentile", "grad_norm%",
    "max_grad_norm", "clipped_grad_norm", "grad_norm_after_clip", "norm", "weight_norm", "params_norm", "grad_norm_max",
    "eval/grad_norm", "grad_norm_std", "grad_norm_clip", "norm_loss", "",
)  # fmt: skip
OTHERS = {
    "train/loss": "loss", "lm loss": "loss", "lm-loss": "loss", "train/CrossEntropyLoss": "loss", "loss_train": "loss",
    "val_loss": None, "eval/loss": None, "train/val_loss": None, "loss_val": None, "aux_loss": None,
    "learning_rate": "lr", "lr-AdamW": "lr", "lr-Adam/pg1": "lr", "train/lr": "lr",
    "loss_scale": "loss_scale", "grad_scale": "loss_scale", "scale": None, "logit_scale": None,
    "max_grad_norm": "max_norm", "clip_ratio": None, "grad/clip_ratio": "clip_coef", "clip": None, "clip_frac": None,
    "trainer/global_step": "step", "_step": "step", "iter": "step", "num_updates": "step", "num_samples": None,
    "_timestamp": "wall_time_s", "epoch": "epoch", "rank": "rank", "found_inf": "skipped", "overflow": "skipped",
}  # fmt: skip


def test_a_column_is_mapped_once() -> None:
    assert parse_map("norm=gn, step=it") == (("grad_norm_before_clip", "gn"), ("step", "it"))
    for text in ("norm=gn,norm=other", "norm=gn,grad_norm=other", "step=a,step=a"):
        with pytest.raises(SettingsError, match="twice"):
            parse_map(text)
    with pytest.raises(SettingsError, match="'x' for two columns"):
        parse_map("norm=x,loss=x")


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_of_all_gradients_is_one_whatever_it_is_called(name: str) -> None:
    assert column_of(name) == "grad_norm_before_clip"


@pytest.mark.parametrize("name", NO_NORMS)
def test_norms_of_layers_percentages_and_clipped_norms_are_none(name: str) -> None:
    assert column_of(name) != "grad_norm_before_clip"


@pytest.mark.parametrize(("name", "column"), OTHERS.items())
def test_other_columns(name: str, column: str | None) -> None:
    assert column_of(name) == column


def test_our_own_names_stand_for_themselves() -> None:
    assert [column_of(name) for name in wire.COLUMNS] == list(wire.COLUMNS)


def test_of_several_names_the_surest_is_chosen() -> None:
    assert chosen(["grad_norm", "grad_norm_before_clip"])["grad_norm_before_clip"] == "grad_norm_before_clip"
    assert chosen(["actor/grad_norm", "grad_norm"])["grad_norm_before_clip"] == "grad_norm"
    assert chosen(["train_loss_epoch", "train_loss_step"])["loss"] == "train_loss_step"
    assert chosen(["grad_norm", "total_grad_norm"])["grad_norm_before_clip"] == "total_grad_norm"
    assert chosen(["my_run/grad_norm", "loss"])["grad_norm_before_clip"] == "my_run/grad_norm"
    assert "grad_norm_before_clip" not in chosen(["a/grad_norm", "b/grad_norm"]), "two of unknown parts"
    assert chosen([]) == {}


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("clip_grad", "max_norm"), ("--clip-grad", "max_norm"), ("optimizer.max_grad_norm", "max_norm"),
        ("gradient_clipping", "max_norm"), ("trainer.gradient_clip_val", "max_norm"), ("clip_grad_value", "clip_value"),
        ("train_iters", "total_steps"), ("loss_scale_window", "growth_interval"), ("hidden_size", None), ("", None),
    ],
)  # fmt: skip
def test_settings(name: str, setting: str | None) -> None:
    assert setting_of(name) == setting


def test_streams_and_norms_after_clipping() -> None:
    assert [stream_of(name) for name in ("critic/grad_norm", "disc_grad_norm", "grad_norm")] == [
        "critic", "discriminator", None,
    ]  # fmt: skip
    assert [is_after_clip(name) for name in ("clipped_grad_norm", "grad_norm/after_clip", "grad_norm", "clip")] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (1, 1.0), (" 2.5 ", 2.5), ("1e-3", 1e-3), (True, 1.0), ("False", 0.0), ("tensor(1091.0826)", 1091.0826),
        ("tensor(3.5, device='cuda:0')", 3.5), ("np.float64(2.0)", 2.0), (10**400, math.inf), (-(10**400), -math.inf),
        ("", None), (None, None), ("None", None), ("null", None), ("-", None), ("abc", None), ([1], None), ({}, None),
        ("1,234.5", 1234.5), ("1,234,567", 1234567.0), ("1,5", None), ("12,34", None), ("2.06K", 2060.0), ("1M", 1e6),
        ("87%", 87.0), ("Infinity", math.inf), ("-inf", -math.inf), ("-1.#INF", -math.inf), ("'2.5'", 2.5),
        ("tensor([1.5])", 1.5), ("Array(1.25, dtype=float32)", 1.25), ("tensor(1.0, grad_fn=<MulBackward0>)", 1.0),
        ("12 ms", None), ("9" * 60, float("9" * 60)), ("9" * 5000, None), ("tensor(" * 30, None),
    ],
)  # fmt: skip
def test_numbers(cell: Any, value: float | None) -> None:
    assert number(cell) == value


@pytest.mark.parametrize(
    "cell", ["nan", "NaN", "-nan", "-nan(ind)", "1.#QNAN", "tensor(nan, device='cuda:0')", "np.float32(nan)"]
)
def test_nan_is_a_value(cell: str) -> None:
    found = number(cell)
    assert found is not None
    assert math.isnan(found)
