"""Keep an error until its cause is over. Raising the error does not clear it, and does not start work again."""

from __future__ import annotations

from tidelog.errors import TidelogError, UnknownTopicOrPartitionError

#: A call that has waited for so long raises the error of a missing topic before its own timeout.
MISSING_TOPICS_TIME_LIMIT_MS = 3_000


class StandingError:
    """The error that keeps records from a reader, and whether a call has raised it.

    error      None if there is none
    failures   how often an error was set
    """

    __slots__ = ("_is_raised", "error", "failures")

    def __init__(self) -> None:
        self.error: TidelogError | None = None
        self.failures = 0
        self._is_raised = False

    def set(self, error: TidelogError) -> None:
        """Keep `error` in place of the last one.

        The error counts as new, unless a call has raised the last one and both have the same type.
        """
        self._is_raised = self._is_raised and type(error) is type(self.error)
        self.error = error
        self.failures += 1

    def clear(self) -> None:
        """Forget the error, because its cause is over."""
        self.error = None
        self._is_raised = False

    def is_new(self) -> bool:
        """Return whether there is an error that no call has raised."""
        return self.error is not None and not self._is_raised

    def is_due(self, waited_ms: int, *, is_over: bool) -> bool:
        """Return whether a call that has waited for `waited_ms` raises the error, if there is one.

        A call whose own time `is_over` raises it. Before, a new error is raised at once, except that of a missing
        topic, because the topic may be created during the first seconds of the call. An error that a call has raised is
        raised again only at the end of a later call.
        """
        is_missing = isinstance(self.error, UnknownTopicOrPartitionError)
        return is_over or (self.is_new() and (not is_missing or waited_ms >= MISSING_TOPICS_TIME_LIMIT_MS))

    def raise_it(self) -> None:
        """Raise the error, if there is one, and note that a call has raised it."""
        if self.error is not None:
            self._is_raised = True
            raise self.error.with_traceback(None)
