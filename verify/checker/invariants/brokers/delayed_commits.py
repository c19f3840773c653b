"""Find the committed offsets that a delayed commit of a Kafka client explains.

Kafka's protocol does not number commits. A client that gets no answer sends the commit again, over another connection,
and the network may deliver the first copy after later commits of the same generation. The committed offset then goes
back, also on Kafka. The rules excuse only what such a copy can do:

    copies      only commits of a client that says so (`Client.commit_copies_ms`), and only if an attempt may have had
                no answer, because the outcome is unknown or the call took at least that time. Copies of commits of
                Tidelog's own clients have no effect, because coordinators refuse them.
    until when  a copy takes effect before any member learns of a later generation than the copy's. So nothing is
                excused if a commit or a fetch of a greater offset began after that.
    what        the copy's own offset, or the last commit of all if its offset is not below the copy's, because a new
                owner of the partition may have begun at the copy's offset and commit less than before
    how long    an overwritten offset does not return unless a client commits it again
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from tidelog.frozen_dataclass import frozen
from tidelog.history.group_operations import CommitFailed, CommitInvoked, CommitOk, CommittedOk, CommitUnknown

Attempt: TypeAlias = CommitOk | CommitFailed | CommitUnknown

#: Returns when a member first learned of a later generation than this one; infinity if none did.
EndOf: TypeAlias = Callable[[int], float]

_NS_PER_MS = 1_000_000


@frozen
class _Copy:
    """A commit that may take effect at any time after `t0`, while its generation lasts."""

    t0: int
    generation: int


class DelayedCommits:
    """The commits of one group and partition of which a copy may be delayed."""

    def __init__(self) -> None:
        #: The commits that have not ended, by offset. They may leave a copy, too.
        self._running: dict[int, list[CommitInvoked]] = defaultdict(list)
        self._copies: dict[int, list[_Copy]] = defaultdict(list)
        #: The fetches that a copy explains.
        self._explained: list[CommittedOk] = []

    def __bool__(self) -> bool:
        return bool(self._running or self._copies)

    def begin(self, invoked: CommitInvoked) -> None:
        """Add a commit of a client whose commits may be delayed, when it is sent."""
        self._running[invoked.offset].append(invoked)

    def end(self, attempt: Attempt, copies_ms: int, generation: int) -> None:
        """Add the end of such a commit. `generation` is the latest that any member knew by then.

        A call that took less than `copies_ms` had one attempt.
        """
        running = [each for each in self._running.pop(attempt.offset, ()) if each.t != attempt.t0]
        if running:
            self._running[attempt.offset] = running
        if isinstance(attempt, CommitOk) and attempt.t1 - attempt.t0 < copies_ms * _NS_PER_MS:
            return
        if not isinstance(attempt, CommitOk) and attempt.generation >= 0:
            # The client may have sent the commit in a generation of which its user has not learned yet.
            copy = _Copy(attempt.t0, max(attempt.generation, generation) + 1)
        else:
            copy = _Copy(attempt.t0, attempt.generation)
        self._copies[attempt.offset].append(copy)

    def explain(
        self,
        fetch: CommittedOk,
        attempts: Sequence[Attempt],
        fetches: Sequence[CommittedOk],
        begun: Iterable[tuple[int, int]],
        end_of: EndOf,
    ) -> bool:
        """Return whether a copy explains a fetch of less than was committed or fetched before. Remember such a fetch.

        `begun` are the requested offsets, each with the time of its request.
        """
        known = [each for each in attempts if isinstance(each, CommitOk) and each.t1 < fetch.t0]
        greater = [each.t0 for each in known if each.offset > fetch.offset]
        greater += [each.t0 for each in fetches if each.t1 < fetch.t0 and each.offset > fetch.offset]
        last_greater = max(greater)
        since = max((each.t0 for each in known), default=0)
        is_last_commit = any(offset == fetch.offset and since <= t < fetch.t1 for offset, t in begun)
        for offset, t0, end in self._possible(end_of):
            of_interest = offset == fetch.offset or (offset < fetch.offset and is_last_commit)
            if of_interest and t0 < fetch.t1 and last_greater < end:
                self._explained.append(fetch)
                return True
        return False

    def _possible(self, end_of: EndOf) -> Iterator[tuple[int, int, float]]:
        """Yield (offset, time of the call, end of the generation) of each commit that may leave a copy."""
        for offset, running in self._running.items():
            for each in running:
                yield offset, each.t, math.inf
        for offset, copies in self._copies.items():
            for copy in copies:
                yield offset, copy.t0, math.inf if copy.generation < 0 else end_of(copy.generation)

    def returned(
        self, attempts: Sequence[Attempt], fetches: Sequence[CommittedOk], begun: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[CommittedOk, CommittedOk]]:
        """Yield (explained fetch, later fetch) if the later one returned an offset that the copy had overwritten.

        All commits must be known, so the call comes at the end.
        """
        ended_at: dict[int, float] = {}
        for attempt in attempts:
            certain = isinstance(attempt, CommitOk) and attempt.offset not in self._copies
            t1 = attempt.t1 if certain or isinstance(attempt, CommitFailed) else math.inf
            ended_at[attempt.offset] = max(t1, ended_at.get(attempt.offset, 0))
        ended = {(each.offset, each.t0) for each in attempts}
        running = {offset for offset, t in begun if (offset, t) not in ended}
        for explained in self._explained:
            for fetch in fetches:
                if fetch.t0 <= explained.t1 or fetch.offset <= explained.offset or fetch.offset in running:
                    continue
                if ended_at.get(fetch.offset, math.inf) < explained.t0:
                    yield explained, fetch
                    break
