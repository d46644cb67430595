"""What others call our columns: one table for all formats.

A name is cut into lower-case words (`train/gradNorm`, `train_grad_norm` and `Train Grad Norm` are the same three), and
every word must be known: `encoder.layer.3/grad_norm` is of one layer, `grad_norm_percentile` is no norm.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from gradsight import wire

OUR_NAMES = frozenset((*wire.COLUMNS, "step", "epoch", "rank", "wall_time_s"))


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+(?:\d+(?![.\d]))?|\d+(?:\.\d+)?")
_NORM_AS_ONE = {"gnorm", "gradnorm", "gradientnorm", "gradsnorm", "gradientsnorm", "gradl2norm", "gradl2"}
_GRADIENT = {"grad", "grads", "gradient", "gradients"}
_NORM = {"norm", "l2norm", "norm2", "l2"}
_PLACES = _set(
    "train training trainer tr optim optimizer opt metrics metric stats stat debug perf performance charts scalars "
    "global local overall total all model whole full main run summary monitor logs log losses loss hyperparameters "
    "amp fp16 scaler info data system learner policy actor critic generator discriminator gen disc"
)
"""Words before or after a name that say where it is logged, or that it is of the whole model."""
_OF_A_NORM = _PLACES | _set(
    "l2 2 2.0 p2 mean avg average preclip pre before clip clipping unclipped raw unscaled step value iter batch"
)
_EVALUATIONS = _set(
    "val valid validation eval evaluation test dev held heldout holdout ema best min max std var median p50 p90 "
    "p95 p99 delta diff"
)

_SIMPLE: dict[str, tuple[str, ...]] = {
    "step": (
        "step", "steps", "global step", "global steps", "globalstep", "iteration", "iterations", "iter", "iters", "it",
        "global iter", "global iteration", "num updates", "num update", "update", "updates", "update step", "n iter",
        "optimizer step", "optimizer steps", "opt step", "training step", "train step", "train steps", "train iter",
        "train iteration", "trainer global step", "current step", "cur step", "current iteration", "cur iter",
        "current steps", "global step max steps",
        "step num", "step number", "step idx", "step id", "nstep", "num steps", "training global step", "batch idx",
        "gradient step", "gradient steps", "grad step", "grad steps", "train global step", "global batch", "niter",
    ),
    "epoch": ("epoch", "train epoch", "trainer epoch", "current epoch", "ep", "epoch float"),
    "rank": ("rank", "global rank", "local rank", "process rank", "proc rank", "dp rank", "worker rank"),
    "wall_time_s": ("wall time s", "wall time", "walltime", "timestamp", "time stamp", "unix time", "created at"),
    "loss": (
        "loss", "train loss", "training loss", "total loss", "loss total", "loss train", "train total loss", "lm loss",
        "train lm loss", "loss step", "train loss step", "train step loss", "step loss", "batch loss",
        "train batch loss",
        "loss metrics global avg loss", "global avg loss", "loss avg", "avg loss", "mean loss", "loss mean", "tloss",
        "train loss mean", "train loss avg", "cross entropy loss", "train cross entropy loss", "ce loss",
        "train ce loss", "train loss epoch", "lm loss training", "loss metrics loss", "nll loss", "train nll loss",
        "mle loss", "train loss all", "losses loss", "losses total", "losses total loss", "train losses total",
    ),
    "lr": (
        "lr", "learning rate", "train lr", "train learning rate", "optim lr", "optimizer lr", "current lr", "last lr",
        "learning rate learning rate", "lr group 0", "lr 0", "lr0", "learningrate", "lr adam w", "lr adam",
        "lr sgd", "lr adam w pg1", "lr adam pg1", "lr sgd pg1", "optim learning rate group 0", "base lr", "cur lr",
        "optimizer learning rate", "optim learning rate", "lr pg0", "lr pg1", "hyperparameters lr", "lr group0",
    ),
    "loss_scale": (
        "loss scale", "lossscale", "loss scaler", "loss scaling", "grad scale", "grad scaler", "gradscale", "scaler",
        "gradscaler", "scaler scale", "amp scale", "fp16 scale", "cur scale", "current loss scale", "fp16 loss scale",
        "amp loss scale", "train loss scale", "grad scaler scale", "gradient scale", "loss scale value",
        "optim loss scale",
        "optimizer loss scale", "scaler value", "train grad scale", "amp grad scale", "dynamic loss scale",
    ),
    "max_norm": (
        "max norm", "max grad norm", "max gradient norm", "grad clip threshold", "clip threshold", "clipping threshold",
        "gradient clip threshold", "gradient clipping threshold", "grad norm threshold", "train max norm",
        "grad clip thresh", "optim max norm", "grad max norm", "train max grad norm", "model norm threshold",
    ),
    "clip_coef": (
        "clip coef", "clip coeff", "clip coefficient", "clipping coefficient", "clipping coef", "grad clip coef",
        "grad clip coeff", "grad clip coefficient", "gradient clip coef", "grad clip ratio", "gradient clip ratio",
        "grad clipping ratio", "gradient clipping ratio", "grad norm clip ratio", "clip coeffs", "grad clip factor",
        "optim clip coef", "train clip coef", "optim grad clip ratio", "train grad clip ratio",
    ),
    "skipped": (
        "skipped", "is skipped", "step skipped", "skipped step", "skip step", "update skipped", "overflow",
        "grad overflow", "found inf", "found nan inf", "has overflow", "overflowed", "is overflow", "gradient overflow",
        "train skipped", "optim skipped", "optim step skipped", "amp found inf",
    ),
}  # fmt: skip
_BY_WORDS = {name: column for column, names in _SIMPLE.items() for name in names}

_SETTINGS: dict[str, tuple[str, ...]] = {
    "max_norm": (
        "clip grad", "clip grad norm", "max grad norm", "gradient clipping", "gradient clip val", "grad clip norm",
        "grad clip", "clip norm", "grad norm clip", "clip gradient", "gradient clip", "grad norm clipping",
        "clip max norm", "grad clip thresh", "max gradient norm", "gradient clip norm", "max norm", "clip gradients",
        "gradient clip value", "clip grad l2norm", "grad clip threshold", "gradient clipping threshold", "clip grads",
        "gradient clip threshold", "grad clipping", "max norm grad", "global grad clip", "clip grad max norm",
        "global gradient clip", "gradient clipping norm", "clip gradient norm", "norm clip", "max grad", "clipnorm",
        "grad clip max norm", "clip threshold", "global clipnorm", "optim max grad norm", "grad max norm",
        "clip grad param",
    ),
    "clip_value": ("clip value", "clip grad value", "grad clip value", "clipvalue", "max grad value"),
    "lr": ("lr", "learning rate", "max lr", "peak lr", "base lr", "actor learning rate"),
    "total_steps": (
        "total steps", "max steps", "train iters", "max iters", "num train steps", "max train steps", "max update",
        "num iterations", "training steps", "num training steps", "total iterations", "total training steps",
        "max iter",
        "max updates", "num iters",
    ),
    "world_size": (
        "world size", "num gpus", "n gpu", "ngpu", "nproc per node", "distributed world size", "ddp world size",
        "num processes", "num nodes gpus",
    ),
    "loss_scale": ("loss scale", "static loss scale", "fixed loss scale"),
    "growth_interval": (
        "growth interval", "loss scale window", "fp16 scale window", "scale window", "scale growth interval",
    ),
    "accumulation_steps": (
        "gradient accumulation steps", "grad accumulation steps", "accumulate grad batches", "grad accum steps",
        "accum grad", "accumulation steps", "update freq", "accum iter", "gradient accumulation", "grad accum",
    ),
    "clip_algorithm": ("gradient clip algorithm",),
    "optimizer": ("optimizer", "optimizer type", "optim", "optimizer name", "opt"),
    "run_name": ("run name", "exp name", "experiment name", "wandb run name", "trial name", "job name"),
}  # fmt: skip
_SETTING_BY_WORDS = {name: setting for setting, names in _SETTINGS.items() for name in names}


def words_of(name: str) -> tuple[str, ...]:
    """The name's words in lower case: `train/gradNorm_2.0` gives train, grad, norm, 2.0."""
    return tuple(word.lower() for word in _WORDS.findall(name[:256]))


@lru_cache(maxsize=4096)
def column_of(name: str) -> str | None:
    """Which of our columns another's name stands for; also `step`, `epoch`, `rank` and `wall_time_s`.

    None where it is none of them, or not surely: a norm of one layer, after clipping, or a percentage; a validation
    loss; a bare `scale`, `clip` or `clip_ratio` (which PPO has of its policy).
    """
    if name in OUR_NAMES:
        return name
    words = words_of(name)
    if not words or len(words) > 8 or "%" in name or "percent" in words:
        return None
    if _is_norm(words):
        return "grad_norm_before_clip"
    for start in range(len(words)):
        if (column := _BY_WORDS.get(" ".join(words[start:]))) is not None:
            # `train_` may stand before a validation loss's own words, not the other way round.
            is_place = all(word in _PLACES for word in words[:start])
            # `total_steps` is how many there will be.
            return column if is_place and not (column == "step" and "total" in words[:start]) else None
        if words[start] not in _PLACES:
            return None
    return None


def _is_norm(words: tuple[str, ...]) -> bool:
    """A norm of all gradients, before clipping."""
    if _EVALUATIONS.intersection(words):
        return False
    if words[-2:] == ("total", "norm") and all(word in _PLACES for word in words[:-2]):
        return True  # what PyTorch's clip_grad_norm_ calls its result
    rest = [word for word in words if word not in _NORM_AS_ONE]
    if len(rest) == len(words):
        if not (_GRADIENT.intersection(words) and _NORM.intersection(words)):
            return False
        rest = [word for word in words if word not in _GRADIENT and word != "norm"]
    says_clip, says_before = {"clip", "clipping"}.intersection(rest), {"before", "pre", "preclip"}.intersection(rest)
    if says_clip and not says_before:  # `grad_norm_clip` is as often the threshold, or the norm after
        return False
    return all(word in _OF_A_NORM or word in _NORM for word in rest)


def is_of_evaluation(name: str) -> bool:
    """Whether a name speaks of an evaluation, or of a statistic over many steps."""
    return not _EVALUATIONS.isdisjoint(words_of(name))


def is_after_clip(name: str) -> bool:
    """Whether this is a norm of the gradients after clipping: none of our columns, and yet worth a remark."""
    words = words_of(name)
    is_norm = bool(_NORM_AS_ONE.intersection(words) or (_GRADIENT.intersection(words) and "norm" in words))
    return is_norm and bool({"after", "post", "postclip", "clipped"}.intersection(words)) and "max" not in words


_LAYER = re.compile(r"(?:.*/)?(?:grad(?:ient)?s?_(?:2(?:\.0)?_)?norms?(?:_l2)?)[/_.](?P<layer>.+)")


def layer_of(name: str) -> str | None:
    """The layer whose gradient's norm this is: `grad_2.0_norm/fc.weight`, `gradients_norm_fc.weight`."""
    match = _LAYER.fullmatch(name)
    if match is None or is_after_clip(name):
        return None
    layer = match["layer"]
    return None if not re.search(r"[A-Za-z]", layer) or layer.lower() in ("total", "step", "epoch", "mean") else layer


@lru_cache(maxsize=4096)
def setting_of(name: str) -> str | None:
    """Which `Setting` a name in a configuration stands for: `--clip-grad`, `optimizer.max_grad_norm`; or None."""
    words = words_of(name)
    if len(words) > 8:
        return None
    return _SETTING_BY_WORDS.get(" ".join(words)) or _SETTING_BY_WORDS.get(" ".join(words[1:]))


_STREAMS = {"gen": "generator", "disc": "discriminator"}
_STREAM_WORDS = ("actor", "critic", "generator", "discriminator", "gen", "disc")


def stream_of(name: str) -> str | None:
    """Whose optimizer a name speaks of, where it says so: `critic/grad_norm` is of `critic`."""
    word = next((word for word in words_of(name) if word in _STREAM_WORDS), None)
    return _STREAMS.get(word, word) if word else None


_PREFERRED = ("preclip", "pre", "before", "total", "global", "unclipped")


def chosen(names: Iterable[str], *, only_sure: bool = False) -> dict[str, str]:
    """{our column: the name that stands for it}, of all columns of a table.

    Of several the surest wins: our own name, then one that says before clipping, of all parameters or of training, a
    plain word for a step, then the shortest. Where no name is a norm and exactly one ends like one
    (`my_run/grad_norm`), that one is; not so where only what is sure is wanted.
    """
    names = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    for name in names:
        column = column_of(name)
        if column is not None and (column not in found or _rank(name, column) < _rank(found[column], column)):
            found[column] = name
    if "grad_norm_before_clip" not in found and not only_sure:
        ends = [name for name in names if words_of(name)[-2:] in (("grad", "norm"), ("gradient", "norm"))]
        if len(ends) == 1 and not _EVALUATIONS.intersection(words_of(ends[0])) and not is_after_clip(ends[0]):
            found["grad_norm_before_clip"] = ends[0]
    return found


_PLAIN_STEPS = {("iter",), ("iteration",), ("it",)}


def _rank(name: str, column: str) -> tuple[bool, bool, bool, bool, bool, int]:
    words = words_of(name)
    says_all = any(word in _PREFERRED for word in words) and column == "grad_norm_before_clip"
    is_epoch_mean = "epoch" in words and column != "epoch"
    is_less_plain = column == "step" and words not in _PLAIN_STEPS
    return name != column, is_epoch_mean, not says_all, is_less_plain, bool(stream_of(name)), len(name)
