"""Limits how fast lines are sent, so that even a short input has lines before, during and after the kill."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_AT_ONCE = 512
_LONGEST_TICK_MS = 100


@dataclass(frozen=True, slots=True)
class Stage:
    """The limits in one step of the scenario.

    per_second   how many lines may be sent in a second; None: no limit
    keep         how many of the lines read ahead are kept for later steps
    flood        replaces `per_second` while the store is full, because more input follows and nothing must be kept;
                 None: no limit
    """

    name: str
    per_second: float | None
    keep: int
    flood: float | None = None


class Pace:
    """Turns the limits of a stage into the number of lines that may be sent now."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._credit = 0.0
        self._last_ms: int | None = None

    @property
    def stage(self) -> Stage:
        return self._stage

    def enter(self, stage: Stage) -> None:
        self._stage = stage
        self._credit = 0.0

    def allowance(self, now_ms: int, held: int, full: bool) -> int:
        """Return how many of the `held` lines that were read ahead may be sent now, and count them as sent.

        `full` says whether the store of these lines is full. At most 512 lines are allowed at once.
        """
        elapsed_ms = min(_LONGEST_TICK_MS, 0 if self._last_ms is None else now_ms - self._last_ms)
        self._last_ms = now_ms
        stage = self._stage
        spare, per_second = (held, stage.flood) if full else (max(0, held - stage.keep), stage.per_second)
        if per_second is None:
            return min(spare, _MOST_AT_ONCE)
        self._credit = min(_MOST_AT_ONCE, self._credit + per_second * elapsed_ms / 1000)
        allowed = min(spare, int(self._credit))
        self._credit -= allowed
        return allowed


def head(known: int) -> Stage:
    """Return the limits at the start: a tenth of the `known` lines, but 2 to 2000, for a look-up by time."""
    return Stage("head", None, known - min(known, max(2, min(2000, known // 10))))


def waiting(held: int) -> Stage:
    """Return the limits while Spark starts: a twentieth of the `held` lines, spread over 15 seconds.

    Most of a long input should still follow when the stream runs, and Spark needs the machine too.
    """
    return Stage("waiting for Spark", max(1.0, held / 20 / 15), held - held // 20, flood=12_000.0)


def before_kill(held: int) -> Stage:
    """Return the limits before the kill: at least 300 lines a second, so that a gap shows, and two fifths kept."""
    return Stage("under fire", max(300.0, held / 10), held * 2 // 5, flood=5_000.0)


def during_gap(held: int) -> Stage:
    """Return the limits during the gap: the same rate as before the kill, and half of the `held` lines kept."""
    return Stage("during_gap", max(300.0, held / 10), held // 2, flood=5_000.0)


def one_broker_less(held: int) -> Stage:
    """Return the limits while the broker is down: half of the `held` lines, spread over about ten seconds."""
    return Stage("one broker less", max(10.0, held / 20), held // 2, flood=12_000.0)
