"""Let no delayed copy of a commit take effect after a later commit of the same committer.

A client repeats a commit that was not answered, often over another connection, and the network may deliver the first
copy after the repeated one, and after later commits. Each commit therefore has a sequence number of its committer:

    lower than the newest accepted one   refused, because the committer has sent a later commit and waits only for that
    equal, and acknowledged already      acknowledged again, and not written again, because other clients may have
                                         committed since
    equal, and not acknowledged          accepted, because an earlier copy may have failed
    higher                               accepted

The numbers live as long as the leader epoch in which this coordinator serves the group. A commit that was sent in an
earlier epoch does not reach these rules, because a commit names the epoch of its coordinator. Pure: time is passed in.
"""

from __future__ import annotations

from collections import OrderedDict

from tidelog.errors import InvalidRequestError, OutOfOrderSequenceError

#: The most committers that are remembered, and the time for which they are remembered after their last commit. Brokers
#: execute no request after its deadline, so a copy is never delayed for longer than the client's request timeout.
MAX_COMMITTERS = 10_000
MAX_IDLE_MS = 600_000
#: The most characters of a committer's id, so that the remembered ids of a partition take a few megabytes.
MAX_COMMITTER_ID = 64


class _Newest:
    """The newest accepted commit of a committer. `used_ms` is the time of its last copy."""

    __slots__ = ("acknowledged", "sequence", "used_ms")

    def __init__(self, sequence: int, used_ms: int) -> None:
        self.sequence = sequence
        self.used_ms = used_ms
        self.acknowledged = False


class CommitSequences:
    """The newest accepted commit of each committer, for all groups of one coordinated partition."""

    def __init__(self) -> None:
        # In the order of `used_ms`. A plain dict takes long to find its first key after many first keys were removed.
        self._newest: OrderedDict[str, _Newest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._newest)

    def is_acknowledged(self, committer_id: str, sequence: int) -> bool:
        """Return whether this commit is a copy of the committer's newest one, which was acknowledged.

        Raise OutOfOrderSequenceError if a later commit was accepted, and InvalidRequestError if the committer's id is
        too long.
        """
        if len(committer_id) > MAX_COMMITTER_ID:
            raise InvalidRequestError(
                f"committer_id: {len(committer_id)} characters: must be at most {MAX_COMMITTER_ID}"
            )
        newest = self._newest.get(committer_id)
        if newest is None:
            return False
        if sequence < newest.sequence:
            raise OutOfOrderSequenceError(
                f"a delayed copy of commit {sequence}: the same committer has sent commit {newest.sequence} meanwhile"
            )
        return sequence == newest.sequence and newest.acknowledged

    def accept(self, committer_id: str, sequence: int, now_ms: int) -> None:
        """Note that this commit is about to be written. Call `is_acknowledged` before. `now_ms` is monotonic.

        Committers without a commit for MAX_IDLE_MS are forgotten. If more than MAX_COMMITTERS are left, the committers
        with the oldest commits are forgotten too.
        """
        newest = self._newest.get(committer_id)
        if newest is None or newest.sequence < sequence:
            newest = self._newest[committer_id] = _Newest(sequence, now_ms)
        newest.used_ms = now_ms
        self._newest.move_to_end(committer_id)
        while True:
            oldest = next(iter(self._newest.values()))
            if len(self._newest) <= MAX_COMMITTERS and now_ms - oldest.used_ms <= MAX_IDLE_MS:
                return
            self._newest.popitem(last=False)

    def acknowledge(self, committer_id: str, sequence: int) -> None:
        """Note that the whole commit was written and is about to be acknowledged."""
        newest = self._newest.get(committer_id)
        if newest is not None and newest.sequence == sequence:
            newest.acknowledged = True
