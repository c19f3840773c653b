"""Hold the commits that a synchronous consumer has begun with `commit_async`, until their callbacks have run.

The I/O thread settles the futures. The callbacks run in the user's own thread, within its calls of the consumer, so
that they may use the consumer and need no locks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from tidelog.errors import ClosedError, OverloadedError
from tidelog.model import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)

#: A consumer may have at most this many commits without an outcome, or with a callback that has not run.
MOST_BEGUN = 1_000

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: Gets the offsets of a commit, and its error, or None if they are committed.
CommitCallback = Callable[[Offsets, BaseException | None], object]


class BegunCommit(NamedTuple):
    """A commit whose request may be in flight; `outcome` has its error, or the result None."""

    offsets: Offsets
    outcome: Future[None]


class _Awaited(NamedTuple):
    commit: BegunCommit
    callback: CommitCallback | None


class BegunCommits:
    """The begun commits of one consumer, in their order. Only the user's thread may call these methods."""

    def __init__(self) -> None:
        self._awaited: deque[_Awaited] = deque()

    def require_space(self) -> None:
        """Raise OverloadedError if 1,000 commits are without an outcome."""
        if len(self._awaited) >= MOST_BEGUN:
            raise OverloadedError(
                f"commit_async: {MOST_BEGUN} commits have no outcome yet: commit less often, or wait for one of them"
            )

    def add(self, commit: BegunCommit, callback: CommitCallback | None) -> None:
        """Keep a commit that has just begun."""
        self._awaited.append(_Awaited(commit, callback))

    def run_callbacks(self) -> None:
        """Call the callbacks in the order of the commits, and stop at the first commit without an outcome.

        An exception of a callback is raised here, and the later callbacks wait for the next call.
        """
        while self._awaited and self._awaited[0].commit.outcome.done():
            commit, callback = self._awaited.popleft()
            if callback is not None:
                callback(commit.offsets, commit.outcome.exception())


def begun_commit(offsets: Offsets, task: asyncio.Task[None], *, logs_error: bool) -> BegunCommit:
    """Return the commit that this task makes. The user cannot cancel its future.

    With `logs_error` an error is logged, because no callback gets it.
    """
    outcome: Future[None] = Future()
    outcome.set_running_or_notify_cancel()
    task.add_done_callback(partial(_settle, outcome, logs_error))
    return BegunCommit(offsets, outcome)


def _settle(outcome: Future[None], logs_error: bool, task: asyncio.Task[None]) -> None:
    error: BaseException | None
    if task.cancelled():
        error = ClosedError("the consumer was closed before the outcome of the commit was known")
    else:
        error = task.exception()
    if error is None:
        outcome.set_result(None)
        return
    if logs_error:
        _log.warning("commit_async: %s", error)
    outcome.set_exception(error)
