"""Implement F15, F45, F51, F52 and F54: system calls of a broker that block, fail, are slow, are cut short, or return a
wrong time.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from tidelog.aio import Consumer
from tidelog.errors import LocalError, TidelogError
from tidelog.model import TopicPartition
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.processes import BrokerFault, follower_of_one, leader_of_one, led_by
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.fault_base import Timing, leaders, of, wait_until
from verify.chaos.faults.support.shim import Page, Shim
from verify.chaos.faults.support.topic_settings import flush_each, stamped_topics

_HOUR_NS = 3_600 * 10**9
#: Longer than the time between the stamp of a record and its arrival at a reader.
_WRONG_MS = 2_000


class CallFault(BrokerFault):
    """A fault of one broker's system calls, which the broker's shim causes until the fault is healed.

    Healing starts the broker again if it has ended. `order` sets `page`: the shared memory (`Page`) that holds the
    orders to this broker's shim.
    """

    needs = frozenset({Need.SHIM, Need.PROCESSES, Need.RESTARTS})
    page: Page

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._done: dict[str, int] = {}

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    def order(self, target: Target, victim: int, **orders: int) -> None:
        """Make the shim of the broker `victim` execute these orders until the fault is healed. The names are those of
        `ORDERS`.
        """
        self.page = cast(Shim, target.prerequisite(Need.SHIM)).page(str(victim))
        before = {name: self.page.read(name) for name in self.counters}

        async def withdraw() -> None:
            self._done = {name: self.page.read(name) - count for name, count in before.items()}
            self.page.withdraw()

        self.will_restart(target, victim)
        self.on_heal(withdraw)
        self.page.order(**orders)

    #: The counters of the page that count the affected calls.
    counters: tuple[str, ...] = ()

    def done(self) -> int:
        """Return how many calls the orders have affected, by `counters`. 0 before the fault is healed."""
        return sum(self._done.values())


class HeldUp(CallFault):
    """One C call in a leader that holds the interpreter lock for longer than the session timeout."""

    row, name = "F15", "leader's interpreter held up"
    counters = ("holds",)

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self._hold_ms, self._hold_ms + 1_000

    @property
    def _hold_ms(self) -> int:
        return self.timing.expired_ms + 1_000

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        self.order(target, victim, hold_ms=self._hold_ms)
        return f"{victim_name}, held up for {self._hold_ms / 1000:g} s"

    def bit(self, evidence: Evidence) -> str | None:
        moved = bite_detection.leaders_changed(evidence, led_by(evidence.before, self.victims))
        return moved if self.done() else None


class TornWrite(CallFault):
    """A leader whose process ends in the middle of a write to a log."""

    row, name = "F45", "process ends in the middle of a write"
    lasts_ms = (500, 1_000)
    #: Positions within a batch's offset, its length, its epoch, its CRC, its header, its records, and before its last
    #: byte.
    places = (1, 8, 11, 14, 19, 40, 60, 62, 75, -1)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._torn = -1

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        after = rng.choice(self.places)
        self.order(target, victim, tear_after=after + 1 if after >= 0 else after)
        process = target.broker_process(victim)
        await wait_until(f"broker {victim} to end in a write", lambda: not process.running, 20)
        self._torn = self.page.read("torn_bytes") - 1
        where = f"{after} bytes into" if after >= 0 else "before the last byte of"
        return f"{victim_name}, killed {where} a write"

    def bit(self, evidence: Evidence) -> str | None:
        return (
            f"the write ended after {self._torn} bytes"
            if self._torn >= 0 and bite_detection.leaders_changed(evidence)
            else None
        )


class WritesFail(CallFault):
    """Writes of a leader or a follower that fail with EIO. The broker must take the directory offline, and must not
    retry the write as if nothing was lost.
    """

    row, name = "F51", "writes fail with EIO"
    counters = ("writes_failed", "syncs_failed")
    orders: Mapping[str, int] = {"write_errno": errno.EIO}
    lasts_ms = (1_500, 2_500)

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        victim, victim_name = rng.choice((leader_of_one, follower_of_one))(view, rng)
        self.order(target, victim, **self.orders)
        return f"{self.name}: {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        out = bite_detection.left_isr(evidence, self.victims)
        return f"{out}; {self.done()} calls failed" if self.done() and out else None


class SyncsFail(WritesFail):
    name = "fsyncs fail with EIO"
    orders: Mapping[str, int] = {"sync_errno": errno.EIO}
    lasts_ms = (2_000, 3_000)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await flush_each(self, target)
        self.order(target, victim, **self.orders)
        return f"{self.name}: {victim_name}"


class SlowDisk(CallFault):
    row, name = "F52", "slow disk"
    counters = ("writes_delayed", "syncs_delayed")
    write_ms = 300

    @property
    def lasts_ms(self) -> tuple[int, int]:
        # sessions and heartbeats must survive the fault
        return self.timing.expired_ms, self.timing.expired_ms + 1_000

    @property
    def availability(self) -> Availability:
        # Its followers may lag behind, and the broker may lag behind others.
        return Availability(self.timing.lagging_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        self.order(target, victim, write_delay_us=self.write_ms * 1000, sync_delay_us=500_000)
        return f"{victim_name}: each write takes {self.write_ms} ms, each fsync 500 ms"

    def bit(self, evidence: Evidence) -> str | None:
        waited = bite_detection.slowed(evidence, self.write_ms)
        return f"{waited}; {self.done()} calls were slow" if self.done() and waited else None

    def broken(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence, self.victims)


class ClockBehind(CallFault):
    """A wrong wall clock of one broker, the leader of a partition with LogAppendTime. No timeout may depend on it."""

    row, name = "F54", "wall clock an hour behind"
    orders: Mapping[str, int] = {"clock_offset_ns": -_HOUR_NS}
    lasts_ms = (3_500, 4_000)  # a log whose timestamps must not decrease keeps its last timestamp during this time

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._most_off_ms = 0

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        stamped = await stamped_topics(target)
        led = {tp: leader for tp, leader in leaders(await target.view()).items() if tp.topic in stamped}
        if not led:
            raise LocalError("no partition with LogAppendTime has a leader")
        tp = rng.choice(list(led))
        self.order(target, led[tp], **self.orders)
        self.meanwhile(self._look(target, tp))
        return f"{self.name}: broker {led[tp]}, leader of {of(tp)}"

    async def _look(self, target: Target, tp: TopicPartition) -> None:
        """Read new records of the partition until cancelled, and note how far their timestamps are from this machine's
        clock at most.
        """
        async with Consumer(bootstrap_servers=target.bootstrap_servers) as consumer:
            consumer.assign([tp])
            consumer.seek_to_end(tp)
            while True:
                with suppress(TidelogError):
                    for records in (await consumer.poll(timeout_ms=200)).values():
                        now_ms = time.time_ns() // 1_000_000
                        off = max((abs(record.timestamp - now_ms) for record in records), default=0)
                        self._most_off_ms = max(self._most_off_ms, off)

    def bit(self, evidence: Evidence) -> str | None:
        if self._most_off_ms < _WRONG_MS:
            return None
        return f"records were stamped with a wrong time, off by {self._most_off_ms / 1000:,.1f} s"

    def broken(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence, self.victims)


class ClockAhead(ClockBehind):
    name = "wall clock an hour ahead"
    orders: Mapping[str, int] = {"clock_offset_ns": _HOUR_NS}


class ClockSwings(ClockBehind):
    name = "wall clock to and fro by 5 s"
    orders: Mapping[str, int] = {"clock_swing_ns": 5 * 10**9, "clock_period_ns": 700_000_000}
