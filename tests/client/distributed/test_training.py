"""A training split over ranks clips and ends as PyTorch's plain recipe on the joint batch does in one process."""

import math

import pytest

from tests.client.distributed.ranks import Ranks
from tests.client.distributed.recipes import (
    OPTIMIZERS,
    Kind,
    Recipe,
    Trained,
    hooked,
    largest_difference,
    plain_on_joint_batch,
    plain_with_ddp,
)


def assert_equal(of_ranks: list[Trained], plain: Trained) -> None:
    """Norms and parameters of every rank are those of the plain recipe, and the ranks' coefficients are one."""
    for trained in of_ranks:
        assert trained.norms == pytest.approx(plain.norms, rel=2e-6)
        for ours, theirs in zip(trained.layer_norms, plain.layer_norms, strict=True):
            assert ours == pytest.approx(theirs, rel=2e-6, abs=2e-6 * max(theirs))
        assert largest_difference(plain.parameters, trained.parameters) < 2e-6
        assert trained.coefs == of_ranks[0].coefs
        assert trained.norms == of_ranks[0].norms


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_every_rank_clips_as_one_process_does(kind: Kind, norm_type: float, two_ranks: Ranks) -> None:
    recipe = Recipe(norm_type=norm_type)
    plain = plain_on_joint_batch(recipe)
    assert any(norm is not None and norm > 0.6 for norm in plain.norms)
    assert_equal(two_ranks(hooked, recipe, kind), plain)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_ends_where_one_process_does(optimizer: str, two_ranks: Ranks) -> None:
    recipe = Recipe(optimizer=optimizer)
    assert_equal(two_ranks(hooked, recipe, "fsdp"), plain_on_joint_batch(recipe))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_accumulation_without_sync_equals_one_large_batch(kind: Kind, two_ranks: Ranks) -> None:
    recipe = Recipe(num_parts=4, num_steps=5)
    assert_equal(two_ranks(hooked, recipe, kind), plain_on_joint_batch(recipe))


def test_replicas_of_shards_are_counted_once(four_ranks: Ranks) -> None:
    recipe = Recipe()
    of_ranks = four_ranks(hooked, recipe, "hsdp")
    assert_equal(of_ranks, plain_on_joint_batch(recipe))
    assert of_ranks[0].num_collectives == [1] * recipe.num_steps


def test_shards_of_tensor_parallel_layers_are_counted_once(four_ranks: Ranks) -> None:
    """Both dimensions of the mesh shard one dimension of a weight here, one of them strided; the last layer knows the
    other mesh alone, so there are two."""
    recipe = Recipe(sizes=(6, 8, 4))
    of_ranks = four_ranks(hooked, recipe, "fsdp+tp")
    assert_equal(of_ranks, plain_on_joint_batch(recipe))
    assert of_ranks[0].num_all_reduces == [2] * recipe.num_steps


@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_order_that_never_waits_for_a_device_is_as_right(kind: Kind, optimizer: str, two_ranks: Ranks) -> None:
    recipe = Recipe(optimizer=optimizer)
    assert_equal(two_ranks(hooked, recipe, kind, "device"), plain_on_joint_batch(recipe))
    for clip in ("unit_norm(0.05)", 'groups("0.*": value(0.02), "*": tensor_norm(0.1))'):
        recipe = Recipe(optimizer=optimizer, clip=clip)
        assert_equal(two_ranks(hooked, recipe, kind, "device"), hooked(recipe))


def test_sharded_gradients_cost_one_all_reduce_and_plain_ones_none(two_ranks: Ranks) -> None:
    recipe = Recipe(num_steps=3, optimizer="adamw-fused")
    for trained in two_ranks(hooked, recipe, "fsdp"):
        assert trained.num_all_reduces == trained.num_collectives == [1, 1, 1]
    for trained in two_ranks(hooked, recipe, "ddp"):
        assert trained.num_collectives == [0, 0, 0]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_all_ranks_skip_where_one_overflows(kind: Kind, optimizer: str, two_ranks: Ranks) -> None:
    recipe = Recipe(precision="fp16", optimizer=optimizer, overflow=((0, 1), (3, 0), (4, 1)))
    plain = two_ranks(plain_with_ddp, recipe)[0]
    for trained in two_ranks(hooked, recipe, kind):
        assert [step for step, skipped in enumerate(trained.skipped) if skipped] == [0, 3, 4]
        assert trained.scales == plain.scales
        assert largest_difference(plain.parameters, trained.parameters) < 2e-6
        assert trained.norms[5:] == pytest.approx(plain.norms[5:], rel=2e-6)
        assert not math.isfinite(trained.norms[3] or 0.0)


@pytest.mark.parametrize(
    ("clip", "num_all_reduces"),
    [
        ("tensor_norm(0.1)", 1),
        ("tensor_norm(ema(factor=1.1, warmup_steps=2))", 1),
        ("tensor_adaptive(warmup_steps=3, max_norm=0.3)", 1),
        ("global_norm(percentile(q=20))", 1),
        ('groups("*weight": global_norm(0.2), "*": tensor_norm(0.1))', 1),
        ("value(0.02)", 2),
        ("unit_norm(0.05)", 3),
        ('unit_norm(0.05, exclude=("0.*",))', 3),
        ('groups("0.*": unit_norm(0.05), "2.*": value(0.02), "*": global_norm(0.2))', 3),
    ],
)
def test_every_policy_does_on_shards_what_it_does_in_one_process(
    clip: str, num_all_reduces: int, two_ranks: Ranks
) -> None:
    recipe = Recipe(clip=clip, num_steps=8)
    alone = hooked(recipe)
    assert any(coef is not None and coef < 0.95 for coef in alone.coefs)
    of_ranks = two_ranks(hooked, recipe, "fsdp")
    assert_equal(of_ranks, alone)
    assert of_ranks[0].coefs == pytest.approx(alone.coefs, rel=1e-5)
    assert of_ranks[0].num_collectives == [num_all_reduces] * recipe.num_steps
