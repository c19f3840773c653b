"""Detect in the evidence that a cluster exceeded a bound of the fault catalogue. Each function returns a sentence, or
None.

The unavailability for clients is checked elsewhere, by each fault's `availability`. If brokers record no histories, the
bounds that need their events are not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from tidelog.history.broker_events import BecomeLeader, IsrChange, Session
from tidelog.model import TopicPartition
from verify.chaos.fault import Evidence
from verify.chaos.faults.support.fault_base import of

_NS_PER_MS: Final = 1_000_000
_NS_PER_MINUTE: Final = 60_000_000_000
_CONNECTED: Final = "connected"


def led_late(evidence: Evidence, tps: Collection[TopicPartition], since: int, within_ms: int) -> str | None:
    """Detect among `tps` the partition that got a leader of a later epoch last, if that was more than `within_ms` after
    `since`.

    Partitions without such a leader are not considered.
    """
    began: dict[TopicPartition, int] = {}
    for events in evidence.events.values():
        for event in events:
            before = evidence.before.partitions.get(event.tp) if isinstance(event, BecomeLeader) else None
            if isinstance(event, BecomeLeader) and before is not None and event.epoch > before.leader_epoch:
                began[event.tp] = min(event.t, began.get(event.tp, event.t))
    late = {tp: began[tp] - since for tp in tps if tp in began}
    tp = max(late, key=late.__getitem__, default=None)
    if tp is None or late[tp] <= within_ms * _NS_PER_MS:
        return None
    return f"{of(tp)} had a leader again after {late[tp] / 1e9:.1f} s; the limit is {within_ms / 1000:g} s"


def reconnected_late(evidence: Evidence, since: int, within_ms: int) -> str | None:
    """Detect the broker with the lowest id that had no connection to ZooKeeper for more than `within_ms`.

    The time counts from `since`, when ZooKeeper served again, or from a later loss of the connection. A connection that
    is still lost counts until `evidence.whole`.
    """
    for broker, events in sorted(evidence.events.items()):
        lost: int | None = None
        for event in sorted((each for each in events if isinstance(each, Session)), key=lambda each: each.t):
            if event.state == _CONNECTED:
                if lost is not None and _is_late(event.t, since, lost, within_ms):
                    return _reconnected(broker, event.t, since, lost, within_ms)
                lost = None
            elif lost is None:
                lost = event.t
        if lost is not None and _is_late(evidence.whole, since, lost, within_ms):
            return _reconnected(broker, evidence.whole, since, lost, within_ms)
    return None


def _is_late(t: int, since: int, lost: int, within_ms: int) -> bool:
    return t - max(since, lost) > within_ms * _NS_PER_MS


def _reconnected(broker: int, t: int, since: int, lost: int, within_ms: int) -> str:
    took_s = (t - max(since, lost)) / 1e9
    return f"broker {broker} was connected to ZooKeeper again after {took_s:.1f} s; the limit is {within_ms / 1000:g} s"


def elected_often(evidence: Evidence, most_per_minute: int) -> str | None:
    """Detect a partition that had more than `most_per_minute` elections per minute from the first to the last view.

    The minutes from the injection to `evidence.whole` count, rounded up.
    """
    most = most_per_minute * -(-max(1, evidence.whole - evidence.injected) // _NS_PER_MINUTE)
    for tp, before in sorted(evidence.before.partitions.items()):
        after = evidence.after.partitions.get(tp)
        if after is not None and (elections := after.leader_epoch - before.leader_epoch) > most:
            return f"{of(tp)} had {elections} elections; the limit is {most}"
    return None


def isr_changed_often(evidence: Evidence, every_ms: int) -> str | None:
    """Detect a partition whose ISR changed from the injection to the healing more often than once per `every_ms` plus
    once.
    """
    changes = Counter(
        event.tp
        for events in evidence.events.values()
        for event in events
        if isinstance(event, IsrChange) and event.ok and evidence.injected <= event.t <= evidence.healed
    )
    most = 1 + (evidence.healed - evidence.injected) // (every_ms * _NS_PER_MS)
    for tp, count in sorted(changes.items()):
        if count > most:
            return f"the ISR of {of(tp)} changed {count} times; the limit is {most}"
    return None
