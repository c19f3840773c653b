"""How long the controller has waited, in ms of its monotonic clock."""

from __future__ import annotations

from tidelog.frozen_dataclass import frozen


@frozen
class Timer:
    """The beginning of one wait.

    since_ms   the first reading of the clock during the wait; None before that
    """

    since_ms: int | None = None

    def started(self, now_ms: int) -> Timer:
        """Return a timer that runs since `now_ms`, or this timer if it runs already."""
        return Timer(now_ms) if self.since_ms is None else self

    def is_over(self, now_ms: int, timeout_ms: int) -> bool:
        """Return whether the wait has lasted for the timeout; False for a timer that was not started."""
        return self.since_ms is not None and now_ms - self.since_ms >= timeout_ms
