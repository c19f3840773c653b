"""The rules that decide on the next step of a move between log directories."""

from __future__ import annotations

from random import Random

from storage.log.leader_epochs import EpochStart
from storage.moves.move_rules import TAIL_BYTES, LogFacts, MoveStep, Progress, agreed_end, next_step

FULL = LogFacts(10, 100, 50, (EpochStart(1, 10), EpochStart(3, 40)))
NOTHING_LEFT = Progress(aligned=True, behind_bytes=0, prepared=True, flushes_wait=False)


def test_each_step_has_its_turn() -> None:
    copy = FULL._replace(log_end_offset=60, recovery_point=0)
    begin = Progress(aligned=False, behind_bytes=None, prepared=False, flushes_wait=False)
    assert next_step(FULL, copy, begin) is MoveStep.KEEP_AGREED
    aligned = begin._replace(aligned=True)
    assert next_step(FULL, copy._replace(log_start_offset=0, log_end_offset=9), aligned) is MoveStep.RESTART
    assert next_step(FULL, copy._replace(log_start_offset=9), aligned) is MoveStep.RAISE_LOG_START
    assert next_step(FULL, copy, aligned) is MoveStep.COPY
    assert next_step(FULL, copy, aligned._replace(behind_bytes=TAIL_BYTES + 1)) is MoveStep.COPY
    near = aligned._replace(behind_bytes=TAIL_BYTES)
    assert next_step(FULL, copy, near) is MoveStep.PREPARE
    prepared = near._replace(prepared=True)
    assert next_step(FULL, copy, prepared) is MoveStep.HOLD_FLUSHES
    waiting = prepared._replace(flushes_wait=True)
    assert next_step(FULL, copy, waiting) is MoveStep.FLUSH
    assert next_step(FULL, copy._replace(log_end_offset=49), waiting) is MoveStep.COPY
    assert next_step(FULL, copy._replace(recovery_point=50), prepared) is MoveStep.REPLACE


def test_copy_that_is_ahead_of_its_log_is_compared_again() -> None:
    ahead = FULL._replace(log_end_offset=101)
    assert next_step(FULL, ahead, NOTHING_LEFT) is MoveStep.KEEP_AGREED


def test_logs_agree_up_to_the_end_of_their_last_common_epoch() -> None:
    copy = FULL._replace(log_end_offset=70)
    assert agreed_end(FULL, copy) == 70
    assert agreed_end(FULL, copy._replace(log_end_offset=120)) == 100
    assert agreed_end(FULL, copy._replace(epochs=(EpochStart(1, 10), EpochStart(2, 60)))) == 40
    assert agreed_end(FULL, copy._replace(epochs=(EpochStart(2, 10),))) is None
    assert agreed_end(FULL, copy._replace(epochs=())) is None
    assert agreed_end(FULL, LogFacts(0, 10, 0, (EpochStart(1, 0),))) is None, "all of it is deleted"


def test_agreed_end_is_that_of_the_records_themselves() -> None:
    """Compare with the epochs of single records, for two logs that diverge from a common history as replicas do."""
    random = Random(7)
    for _ in range(300):
        common = _grown([], random, random.randint(0, 12), 0)
        epoch = common[-1] if common else 0
        current = _grown(common, random, random.randint(0, 8), epoch)
        # Only one of them goes on in the last common epoch, because the other one did not hear of its later records.
        copy = _grown(common, random, random.randint(0, 8), (current[-1] if current else epoch) + 1)
        kept = agreed_end(_facts(current), _facts(copy))
        pairs = list(zip(current, copy, strict=False))
        equal = next((at for at, (here, there) in enumerate(pairs) if here != there), len(pairs))
        assert kept == (equal or None)


def _grown(epochs: list[int], random: Random, count: int, epoch: int) -> list[int]:
    grown = list(epochs)
    for _ in range(count):
        epoch += random.random() < 0.3
        grown.append(epoch)
    return grown


def _facts(epochs: list[int]) -> LogFacts:
    starts = [EpochStart(epoch, at) for at, epoch in enumerate(epochs) if not at or epochs[at - 1] != epoch]
    return LogFacts(0, len(epochs), 0, starts)
