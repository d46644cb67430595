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
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradsight.errors import ClosedError, ConfigurationError, GradsightError
    from gradsight.monitor import Monitor, StepResult
    from gradsight.policies import GlobalNorm
    from gradsight.run import Run

__all__ = [
    "ClosedError",
    "ConfigurationError",
    "GlobalNorm",
    "GradsightError",
    "Monitor",
    "Run",
    "StepResult",
    "__version__",
]

_HOMES = {
    "ClosedError": "errors",
    "ConfigurationError": "errors",
    "GlobalNorm": "policies",
    "GradsightError": "errors",
    "Monitor": "monitor",
    "Run": "run",
    "StepResult": "monitor",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        try:
            return version("gradsight")
        except PackageNotFoundError:
            return "0+unknown"
    if name in _HOMES:
        return getattr(import_module(f"gradsight.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gradsight' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
