"""Check I21: brokers have no unexpected errors and leak no resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.history.broker_events import Error, Resources, Traceback
from verify.checker.facts import Facts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Handler, Invariant

_BASELINE, _HEALED = "baseline", "healed"
#: The permitted growth of a resource: five percent, or a small number. Thread pools grow with the work and keep their
#: size: eight threads for flushes (used if a fault makes topics flush each record), six for log maintenance, and
#: asyncio's pool of four more than there are processors.
_MORE: Final = 0.05
_FEW: Final = {"fds": 8, "threads": 20, "rss": 16 << 20, "purgatory": 4, "tasks": 8}


class ResourceLeaks(Invariant):
    """Check I21: no traceback and no UNKNOWN_SERVER_ERROR; file descriptors, threads, memory and waiting operations
    return to their level.

    Resources are compared within one process of a broker, from its latest "baseline" to each later "healed", and each
    comparison is an observation. The absence of errors is not an observation. A negative number is unknown and not
    compared.
    """

    key, name = "I21", "no unforeseen failure, nothing leaks"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._baselines: dict[tuple[str, int], Resources] = {}

    def handlers(self) -> Mapping[type, Handler]:
        return {Error: self._failed, Traceback: self._raised, Resources: self._counted}

    def _failed(self, source: Source, event: Error) -> None:
        self.tally.observations += 1
        if not self.only_counted():
            says = f"broker {source.name} answered {event.api} with error code {event.code}"
            self.violated(None, event.t, says, f"broker {source.name} at {seconds(event.t)}")

    def _raised(self, source: Source, event: Traceback) -> None:
        self.tally.observations += 1
        if not self.only_counted():
            last = event.text.strip().rsplit("\n", 1)[-1]
            says = f"broker {source.name} had an unexpected error: {last}"
            self.violated(None, event.t, says, f"broker {source.name} at {seconds(event.t)}: {event.text}")

    def _counted(self, source: Source, event: Resources) -> None:
        key = (source.name, source.life)
        if event.phase == _BASELINE:
            self._baselines[key] = event
        before = self._baselines.get(key)
        if event.phase != _HEALED or before is None:
            return
        pairs = {what: (getattr(before, what), getattr(event, what)) for what in _FEW}
        self.tally.observations += any(min(pair) >= 0 for pair in pairs.values())
        for what, (had, has) in pairs.items():
            if had >= 0 and has > max(had * (1 + _MORE), had + _FEW[what]) and not self.only_counted():
                says = f"broker {source.name} has {has} {what} at the end of the run, but had {had} before"
                proof = (
                    f"broker {source.name}: {each} at {seconds(t)}" for each, t in ((had, before.t), (has, event.t))
                )
                self.violated(None, event.t, says, *proof)
