"""Live gradient monitoring: mixed precision and clipping for a training loop, watched.

    run = gradsight.Run(project="lm", name="baseline")
    monitor = gradsight.Monitor(model, optimizer, run=run, precision="fp16", clip=1.0)
    ...
    with monitor.autocast():
        loss = loss_fn(model(x), y)
    monitor.step(loss)

The names load what they need when first used, so that importing this package costs neither torch nor time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradsight.alerts import Alert
    from gradsight.errors import ClosedError, ConfigurationError, GradsightError, TrainingStopped
    from gradsight.monitor import Monitor
    from gradsight.policies import GlobalNorm, Groups, TensorAdaptive, TensorNorm, UnitNorm, Value, parse_policy
    from gradsight.result import StepResult
    from gradsight.run import Run
    from gradsight.scaling import DynamicScale
    from gradsight.thresholds import Cosine, Ema, Percentile, ZScore

__all__ = [
    "Alert",
    "ClosedError",
    "ConfigurationError",
    "Cosine",
    "DynamicScale",
    "Ema",
    "GlobalNorm",
    "GradsightError",
    "Groups",
    "Monitor",
    "Percentile",
    "Run",
    "StepResult",
    "TensorAdaptive",
    "TensorNorm",
    "TrainingStopped",
    "UnitNorm",
    "Value",
    "ZScore",
    "__version__",
    "parse_policy",
]

_HOMES = {
    "Alert": "alerts",
    **dict.fromkeys(("ClosedError", "ConfigurationError", "GradsightError", "TrainingStopped"), "errors"),
    **dict.fromkeys(("Cosine", "Ema", "Percentile", "ZScore"), "thresholds"),
    **dict.fromkeys(
        ("GlobalNorm", "Groups", "TensorAdaptive", "TensorNorm", "UnitNorm", "Value", "parse_policy"), "policies"
    ),
    "DynamicScale": "scaling",
    "Monitor": "monitor",
    "Run": "run",
    "StepResult": "result",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version  # late: it is most of what an import would cost

        try:
            return version("gradsight")
        except PackageNotFoundError:
            return "0+unknown"
    if name in _HOMES:
        return getattr(import_module(f"gradsight.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gradsight' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
