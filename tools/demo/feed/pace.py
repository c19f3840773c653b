"""How fast lines may leave, so that there are some before, during and after the kill, however few there are."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_AT_ONCE = 512
_LONGEST_TICK_MS = 100


@dataclass(frozen=True, slots=True)
class Stage:
    """What holds at one point of the story.

    per_second   how many lines may leave; None: as fast as they can
    keep         how many of the lines read ahead stay for later stages
    flood        what holds instead while the store is full: there is more input behind it, and nothing has to be saved
    """

    name: str
    per_second: float | None
    keep: int
    flood: float | None = None


class Pace:
    """Turns a stage into a number of lines for this moment."""

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
        """How many of the `held` lines may leave now."""
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
    """Something to look a time up in, of the `known` lines that are at hand when it begins."""
    return Stage("head", None, known - min(known, max(2, min(2000, known // 10))))


def waiting(held: int) -> Stage:
    """A trickle while Spark starts: a twentieth of what is left, over the time that this takes.

    Of a long input most should still be to come when the stream runs, and Spark needs the machine too.
    """
    return Stage("waiting for Spark", max(1.0, held / 20 / 15), held - held // 20, flood=12_000.0)


def under_fire(held: int) -> Stage:
    """Enough acknowledgements in each second to see a gap, and a good part left for the time after it."""
    return Stage("under fire", max(300.0, held / 10), held * 2 // 5, flood=5_000.0)


def leaderless(held: int) -> Stage:
    """The same, as long as the gap may last."""
    return Stage("leaderless", max(300.0, held / 10), held // 2, flood=5_000.0)


def one_broker_less(held: int) -> Stage:
    """Lines for some batches of the stream while the broker is away."""
    return Stage("one broker less", max(10.0, held / 20), held // 2, flood=12_000.0)
