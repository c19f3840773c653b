"""An error that stands until its cause is over. Raising it does not end it, so that it makes nothing start again."""

from __future__ import annotations

from tidelog.errors import TidelogError, UnknownTopicOrPartitionError

#: A call that waits for longer is told as soon as it is certain that a topic does not exist.
PATIENCE_WITH_MISSING_TOPICS_MS = 3_000


class StandingError:
    """Why a reader gets nothing, and whether a call has raised it.

    error       None while all is well
    failures    counts how often the cause was found again
    """

    __slots__ = ("_is_raised", "error", "failures")

    def __init__(self) -> None:
        self.error: TidelogError | None = None
        self.failures = 0
        self._is_raised = False

    def set(self, error: TidelogError) -> None:
        """Stand for `error`; an error of the same type counts as the same one, and its newest words are raised."""
        self._is_raised = self._is_raised and type(error) is type(self.error)
        self.error = error
        self.failures += 1

    def clear(self) -> None:
        """Note that the cause is over."""
        self.error = None
        self._is_raised = False

    def is_new(self) -> bool:
        """Return whether there is an error that no call has raised."""
        return self.error is not None and not self._is_raised

    def is_due(self, waited_ms: int, *, is_over: bool) -> bool:
        """Return whether a call that has waited for so long raises it; `is_over`: the time of the call is over.

        A new error is raised at once. A missing topic may be created while a call waits, so only a long call is ended
        by it. An error that a call has raised is raised again only when the time of another call is over.
        """
        is_missing = isinstance(self.error, UnknownTopicOrPartitionError)
        return is_over or (self.is_new() and (not is_missing or waited_ms >= PATIENCE_WITH_MISSING_TOPICS_MS))

    def raise_it(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            self._is_raised = True
            raise self.error.with_traceback(None)
