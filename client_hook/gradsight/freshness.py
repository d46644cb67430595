"""Whether a backward has come since the last step: told by the gradients, which a user may have filled himself."""

from collections.abc import Sequence
from weakref import ref

from torch import Tensor


class Freshness:
    """Knows the last step's gradients by the last of them and its version; by all versions where those count."""

    def __init__(self) -> None:
        self._seen: tuple[ref[Tensor], int, list[int] | None] | None = None

    def of(self, grads: Sequence[Tensor], *, had_backward: bool) -> bool:
        """Whether these have come since the last step: by the monitor's backward, or by one that changed them."""
        if not grads or had_backward or self._seen is None:
            return bool(grads)
        last, version, all_versions = self._seen
        if last() is not grads[-1] or grads[-1]._version != version:
            return True
        return all_versions is not None and [grad._version for grad in grads] != all_versions

    def note(self, grads: Sequence[Tensor], *, had_backward: bool) -> None:
        """These were a step's. Where backwards are the user's own, one of them may reach some layers only, so that the
        last gradient is not enough."""
        if not grads:
            self._seen = None
            return
        all_versions = None if had_backward else [grad._version for grad in grads]
        self._seen = ref(grads[-1]), grads[-1]._version, all_versions
