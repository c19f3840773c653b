"""Who has shown that it lived after something was lost.

A registration outlives its process by as much as a session: to be registered proves nothing. Whoever answers a
request that was sent after another one's loss was alive after it, and all that it held then it holds, for its memory
and its page cache have not ended with that loss. Only in favour of such a one is anybody taken out of an ISR. Where
somebody is to go though nothing was lost, a moment begins all the same, and the heirs are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: The moment of what proves nothing, whoever answers it.
NEVER = -1


class Liveness:
    """Moments are counted from 0, when the reign began, one for each loss that the controller hears of or is to cause.

    now   to be noted with each request when it is sent, and brought back with its answer
    """

    def __init__(self, controller_id: int) -> None:
        self.now = 0
        self._controller_id = controller_id
        self._lost: dict[int, int] = {}
        self._heard: dict[int, int] = {}

    def lost(self, broker_ids: Iterable[int]) -> None:
        """These died, came back possibly short, or otherwise do not count any more; signs of before prove nothing."""
        self._lost |= dict.fromkeys(broker_ids, self.begin())

    def begin(self) -> int:
        """A moment begins, and nobody has shown yet that it lives since; which one."""
        self.now += 1
        return self.now

    def ended(self, broker_id: int) -> None:
        """Its registration is gone: whatever it has answered, another process did."""
        self._heard.pop(broker_id, None)

    def answered(self, broker_id: int, asked: int) -> bool:
        """A live registration's answer to what was sent at the moment `asked`. Whether that tells anything new."""
        is_news = asked > self._heard.get(broker_id, NEVER)
        if is_news:
            self._heard[broker_id] = asked
        return is_news

    def shown(self, candidates: Collection[int], lost: Iterable[int]) -> bool:
        """Whether one of the candidates has lived since each of the lost was."""
        return self.lived(candidates, self.last_loss(lost))

    def lived(self, candidates: Collection[int], since: int) -> bool:
        """Whether one of them has lived since that moment; the controller itself always has."""
        return any(each == self._controller_id or self._heard.get(each, NEVER) >= since for each in candidates)

    def last_loss(self, broker_ids: Iterable[int]) -> int:
        """The moment of the last loss of any of these."""
        return max((self._lost.get(broker_id, 0) for broker_id in broker_ids), default=0)
