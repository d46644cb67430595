"""What `import gradsight` offers, pinned: adding or removing a name is a decision."""

import subprocess
import sys

import gradsight


def test_the_public_names_are_these() -> None:
    assert gradsight.__all__ == [
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
    assert gradsight.__all__ == sorted(gradsight.__all__)


def test_every_public_name_is_there_and_no_other() -> None:
    for name in gradsight.__all__:
        assert getattr(gradsight, name) is not None
    assert dir(gradsight) == gradsight.__all__
    assert not hasattr(gradsight, "monitor_everything")


def test_importing_and_logging_without_pytorch_loads_none_of_it() -> None:
    code = (
        "import sys, gradsight\n"
        "assert not {'torch', 'httpx', 'msgspec'} & set(sys.modules), 'import gradsight loads too much'\n"
        "gradsight.Run(mode='disabled').log_step(0, loss=1.0)\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules, 'Run needs no torch'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
