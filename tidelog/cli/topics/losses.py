"""Finds what a change of a topic's settings would lose: existing records, or a guarantee. The functions are pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.quantities import count_of, format_duration, format_size
from tidelog.timestamps import format_time

if TYPE_CHECKING:
    from tidelog.client.admin.topic_time_spans import PartitionTimes

RETENTION_MS, RETENTION_BYTES, POLICY = "retention.ms", "retention.bytes", "cleanup.policy"
MIN_IN_SYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
#: A change of one of these may delete records. Whether it does depends on the records in the partitions.
DELETES = frozenset({RETENTION_MS, RETENTION_BYTES, POLICY})
#: A change of any other setting loses nothing.
MAY_LOSE = DELETES | {MIN_IN_SYNC, UNCLEAN}
_FOR_EVER = sys.maxsize


def losses(
    before: Mapping[str, str], after: Mapping[str, str], held: Sequence[PartitionTimes], now_ms: int
) -> list[str]:
    """Return a clause for each loss that the change of settings may cause; empty if there is none.

    `before` and `after` are the topic's effective settings, and `held` describes the records in its partitions; one
    that did not answer counts as affected. A value that is not a number causes no loss, because the broker refuses it.
    """
    return [
        *_promises(before, after),
        *_deleted_by_retention(before, after, held, now_ms),
        *_compacted(before, after, held),
    ]


def _promises(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    old, new = _number(before, MIN_IN_SYNC), _number(after, MIN_IN_SYNC)
    if old is not None and new is not None and new < old:
        copies = count_of(new, "copy")
        yield f"{MIN_IN_SYNC} from {old} to {new} acknowledges records that have {copies}, which a failure may lose"
    if before.get(UNCLEAN) == "false" and after.get(UNCLEAN) == "true":
        yield f"{UNCLEAN}=true allows a leader that lacks acknowledged records"


def _deleted_by_retention(
    before: Mapping[str, str], after: Mapping[str, str], held: Sequence[PartitionTimes], now_ms: int
) -> Iterator[str]:
    keep_ms = _limit(after, RETENTION_MS)
    if keep_ms < _limit(before, RETENTION_MS):
        late = [each for each in held if _may_begin_before(each, now_ms - keep_ms)]
        if late:
            times = [each.oldest.timestamp for each in late if each.oldest is not None]
            oldest = f" (the oldest is of {format_time(min(times))})" if times else ""
            yield (
                f"{RETENTION_MS}={keep_ms} deletes records older than {format_duration(keep_ms)}, "
                f"in {count_of(len(late), 'partition')}{oldest}"
            )
    keep_bytes = _limit(after, RETENTION_BYTES)
    if keep_bytes < _limit(before, RETENTION_BYTES):
        large = [each for each in held if each.size_bytes is None or each.size_bytes > keep_bytes]
        if large:
            yield (
                f"{RETENTION_BYTES}={keep_bytes} deletes the oldest records beyond {format_size(keep_bytes)}, "
                f"in {count_of(len(large), 'partition')}"
            )


def _compacted(before: Mapping[str, str], after: Mapping[str, str], held: Sequence[PartitionTimes]) -> Iterator[str]:
    begins = "compact" in _policies(after) and "compact" not in _policies(before)
    filled = [each for each in held if each.records != 0]
    if begins and filled:
        yield (
            f"{POLICY}={after[POLICY]} keeps only the last record of each key, in {count_of(len(filled), 'partition')}"
        )


def _may_begin_before(each: PartitionTimes, cutoff_ms: int) -> bool:
    """Return whether the partition may hold a record older than the cutoff; True if its oldest record is unknown."""
    if each.records == 0:
        return False
    return each.oldest is None or each.oldest.timestamp < cutoff_ms


def _limit(settings: Mapping[str, str], name: str) -> int:
    """Return the limit of retention (ms or bytes); _FOR_EVER at −1, and if the cleanup policy does not delete."""
    number = _number(settings, name)
    return _FOR_EVER if number is None or number < 0 or "delete" not in _policies(settings) else number


def _policies(settings: Mapping[str, str]) -> set[str]:
    return {each.strip() for each in settings.get(POLICY, "delete").split(",")}


def _number(settings: Mapping[str, str], name: str) -> int | None:
    try:
        return int(settings[name])
    except (KeyError, ValueError):
        return None
