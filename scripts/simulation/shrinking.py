"""Making a story short that fails: whatever can be left out is left out, while something of it still goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simulation.run import Outcome
from simulation.story import Story


def shrink(failed: Outcome, tell: Callable[[Story], Outcome], on_step: Callable[[Outcome], object]) -> Outcome:
    """The shortest that was found. What goes wrong in it is of a kind that went wrong in the first."""
    best = failed

    def fails(story: Story) -> bool:
        nonlocal best
        outcome = tell(story)
        if outcome.kinds & failed.kinds:
            best = outcome
            on_step(outcome)
            return True
        return False

    fails(replace(best.story, seconds=_enough(best)))
    size = max(1, len(best.story.faults) // 2)
    while size:
        place = 0
        while place < len(best.story.faults):
            if not fails(best.story.without(faults=range(place, place + size))):
                place += size
        size //= 2
    for place in range(len(best.story.clients)):
        if best.story.clients[place]:
            fails(best.story.without(clients=[place]))
    for place, fault in enumerate(best.story.faults):
        if fault.for_ms > 1_000:
            shorter = replace(fault, for_ms=fault.for_ms // 4)
            faults = (*best.story.faults[:place], shorter, *best.story.faults[place + 1 :])
            fails(replace(best.story, faults=faults))
    fails(replace(best.story, seconds=_enough(best)))
    return replace(best, story=replace(best.story, found="\n".join(best.wrong[:3])))


def _enough(outcome: Outcome) -> float:
    """Nothing after its end has made it go wrong."""
    return min(outcome.story.seconds, float(round(outcome.simulated_s + 0.5)))
