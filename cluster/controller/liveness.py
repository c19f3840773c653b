"""Proof that a broker was alive after another broker was lost.

A registration outlives its process by up to one session timeout, so being registered proves nothing. A broker that
answers a request that was sent after a loss was alive after that loss. Its memory and page cache still hold all records
that they held at the loss. The controller removes a replica from an ISR only in favour of a member with this proof. The
controller also begins a liveness epoch before a hand-off or a reassignment, where no broker was lost, and asks the
remaining members again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: The liveness epoch of a request whose answer proves nothing.
NEVER = -1


class Liveness:
    """Counts liveness epochs from 0, one for each loss that the controller notes or is about to cause.

    epoch   the current liveness epoch. The caller notes it with each request sent, and passes it back with the answer.
    """

    def __init__(self, controller_id: int) -> None:
        self.epoch = 0
        self._controller_id = controller_id
        self._lost: dict[int, int] = {}
        self._heard: dict[int, int] = {}

    def note_lost(self, broker_ids: Iterable[int]) -> None:
        """Begin a liveness epoch, because these brokers died, came back possibly short, or are no longer trusted."""
        self._lost |= dict.fromkeys(broker_ids, self.new_epoch())

    def new_epoch(self) -> int:
        """Begin a liveness epoch, in which no broker has proved yet that it is alive, and return it."""
        self.epoch += 1
        return self.epoch

    def on_registration_ended(self, broker_id: int) -> None:
        """Discard the proof of a broker whose registration ended, because another process gave it."""
        self._heard.pop(broker_id, None)

    def answered(self, broker_id: int, asked: int) -> bool:
        """Note a live registration's answer to a request that was sent in liveness epoch `asked`.

        Return whether the answer is new proof.
        """
        is_news = asked > self._heard.get(broker_id, NEVER)
        if is_news:
            self._heard[broker_id] = asked
        return is_news

    def any_alive_since_loss(self, candidates: Collection[int], lost: Iterable[int]) -> bool:
        """Return whether a candidate has proved that it was alive after the last loss of any of these brokers.

        True also if the controller's own broker is a candidate.
        """
        return self.any_alive_since(candidates, self.last_loss(lost))

    def any_alive_since(self, candidates: Collection[int], since: int) -> bool:
        """Return whether a candidate has answered a request of that liveness epoch or a later one.

        True also if the controller's own broker is a candidate.
        """
        return any(each == self._controller_id or self._heard.get(each, NEVER) >= since for each in candidates)

    def last_loss(self, broker_ids: Iterable[int]) -> int:
        """Return the liveness epoch of the last loss of any of these brokers; 0 if none was lost."""
        return max((self._lost.get(broker_id, 0) for broker_id in broker_ids), default=0)
