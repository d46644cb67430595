"""What a log's configuration says of a run: thresholds, precision, optimizer; per stream where it tells."""

import math
from dataclasses import dataclass, field
from typing import Any

from msgspec import UnsetType

from gradsight import wire
from gradsight.errors import ConfigurationError
from gradsight.policies import GlobalNorm, Value, parse_policy
from gradsight_server.importers.items import Setting

PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(slots=True)
class RunSettings:
    """One run's settings; of several of one name the last is in force."""

    max_norm: float | None = None
    """What a person says: goes over the log's."""
    _known: dict[tuple[str | None, str], Setting] = field(default_factory=dict)

    def copy(self) -> "RunSettings":
        return RunSettings(self.max_norm, dict(self._known))

    def add(self, setting: Setting) -> None:
        self._known[setting.stream, setting.name] = setting

    def find(self, name: str, stream: str | None = None) -> Setting | None:
        return self._known.get((stream, name)) or self._known.get((None, name))

    def number(self, name: str, stream: str | None = None) -> float | None:
        """None where it is not known, or no finite number."""
        setting = self.find(name, stream)
        value = setting.value if setting is not None else None
        return value if isinstance(value, float | int) and math.isfinite(value) else None

    def text(self, name: str, stream: str | None = None) -> str | None:
        setting = self.find(name, stream)
        return setting.value.strip() or None if setting is not None and isinstance(setting.value, str) else None

    def threshold(self, stream: str) -> float | None:
        """The max_norm in force; None where clipping is off, or nobody knows."""
        value = None if self.clips_by_value(stream) else self.number("max_norm", stream)
        return value if value is not None and value > 0 else None

    def clips_by_value(self, stream: str | None = None) -> bool:
        """Whether what is called a threshold is one of each element, as Lightning can have it."""
        return (self.text("clip_algorithm", stream) or "").lower() == "value"

    @property
    def total_steps(self) -> int | None:
        return _count(self.number("total_steps"), wire.MAX_STEP)

    @property
    def world_size(self) -> int | None:
        return _count(self.number("world_size"), 10_000_000)

    @property
    def growth_interval(self) -> int | None:
        return _count(self.number("growth_interval"), wire.MAX_STEP)

    @property
    def name(self) -> str | None:
        name = self.text("run_name")
        return "".join(name.replace("\0", "").splitlines())[:256] or None if name else None

    def record(self, stream: str) -> wire.StreamRecord:
        """The stream as the wire has it."""
        record = wire.StreamRecord()
        optimizer = self.text("optimizer", stream)
        if optimizer:
            name = optimizer.replace("\0", "")[:256] or "unknown"
            record.optimizer = wire.Optimizer(class_name=name, lr=self.number("lr", stream))
        precision = self.text("precision", stream)
        if precision in PRECISIONS:
            record.precision = precision  # type: ignore[assignment]  # one of them
        scaler = self._scaler(stream)
        if scaler is not None:
            record.scaler = scaler
        record.policy = self._policy(stream)
        return record

    def _scaler(self, stream: str) -> str | None:
        text = self.text("scaler", stream)
        if text is not None:
            return text[:256]
        scale = self.number("loss_scale", stream)
        return f"static({scale!r})" if scale is not None and scale > 0 else None

    def _policy(self, stream: str) -> str | UnsetType | None:
        """None where clipping is said to be off, unset where nothing is said."""
        if self.max_norm is not None:
            return str(GlobalNorm(self.max_norm))
        text = self.text("policy", stream)
        if text is not None:
            try:
                return str(parse_policy(text))
            except ConfigurationError:
                pass
        value = self.number("clip_value", stream)
        threshold = self.find("max_norm", stream)
        if self.clips_by_value(stream):
            value, threshold = value or self.number("max_norm", stream), None
        try:
            if threshold is None:
                return str(Value(value)) if value is not None and value > 0 else wire.UNSET
            if isinstance(threshold.value, str):
                return wire.UNSET
            found = self.threshold(stream)
            if found is not None:
                return str(GlobalNorm(found))
            return str(Value(value)) if value is not None and value > 0 else None
        except ConfigurationError:
            return wire.UNSET

    def as_config(self) -> dict[str, Any]:
        """By the log's own names, as JSON can have them."""
        return {
            (f"{setting.stream}/{setting.source}" if setting.stream else setting.source)[:256]: _plain(setting.value)
            for setting in self._known.values()
        }


def _count(value: float | None, most: int) -> int | None:
    return int(value) if value is not None and 1 <= value <= most else None


def _plain(value: float | str | None) -> float | str | None:
    if isinstance(value, str):
        return value[:1024]
    return value if value is None or math.isfinite(value) else str(value)
