"""The evidence on which a broker counts as dead, and how often it may be fenced."""

from __future__ import annotations

import asyncio
import socket

import pytest

from cluster.state import BrokerRegistration
from cluster.zookeeper.store import OutcomeUnknownError
from node.controller.failure_detector import FailureDetector, FenceLimiter, ProbeOutcome, probe
from tests.hand_clock import HandClock
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS


def broker(port: int = 1, broker_id: int = 7) -> BrokerRegistration:
    endpoint = Endpoint("127.0.0.1", port)
    return BrokerRegistration(broker_id, {CLIENTS: endpoint, BROKERS: endpoint}, epoch=70)


async def test_probe_tells_accepted_refused_and_silent_apart() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        endpoint = Endpoint("127.0.0.1", listener.getsockname()[1])
        assert await probe(endpoint) is ProbeOutcome.ACCEPTED
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex((endpoint.host, endpoint.port))
        assert await probe(endpoint, timeout_ms=200) is ProbeOutcome.SILENT
        for filler in fillers:
            filler.close()
    assert await probe(endpoint) is ProbeOutcome.REFUSED


def test_no_broker_is_fenced_twice_within_a_session_timeout() -> None:
    limiter = FenceLimiter(6000)
    assert limiter.allows(1, 0)
    limiter.fenced(1, 0)
    assert not limiter.allows(1, 5999)
    assert limiter.allows(2, 10)
    assert limiter.allows(1, 6000)


class DetectorStage:
    """A failure detector whose probes and fences are counted."""

    def __init__(self, outcome: ProbeOutcome) -> None:
        self.clock = HandClock()
        self.outcome = outcome
        self.probes = 0
        self.fenced: list[int] = []
        self.registered = True
        self.failure: Exception | None = None
        self.detector = FailureDetector(self.clock, FenceLimiter(6000), self._fence, self._probe)

    async def _probe(self, endpoint: Endpoint) -> ProbeOutcome:
        self.probes += 1
        await asyncio.sleep(0)
        return self.outcome

    async def _fence(self, registration: BrokerRegistration) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.registered:
            self.fenced.append(registration.epoch)
        return self.registered

    async def rest(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_only_a_refused_connect_confirms_a_suspicion() -> None:
    for outcome in ProbeOutcome:
        stage = DetectorStage(outcome)
        stage.detector.suspect(broker())
        await stage.rest()
        assert stage.fenced == ([70] if outcome is ProbeOutcome.REFUSED else [])


async def test_many_suspicions_cause_one_probe_and_one_fence() -> None:
    stage = DetectorStage(ProbeOutcome.REFUSED)
    for _ in range(10):
        stage.detector.suspect(broker())
    await stage.rest()
    stage.detector.suspect(broker())
    await stage.rest()
    assert (stage.probes, stage.fenced) == (1, [70])
    stage.clock.at_ms = 6000
    stage.detector.suspect(broker())
    await stage.rest()
    assert (stage.probes, stage.fenced) == (2, [70, 70])


async def test_failed_fence_is_tried_again_at_the_next_suspicion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = DetectorStage(ProbeOutcome.REFUSED)
    stage.failure = OutcomeUnknownError("no connection")
    stage.detector.suspect(broker())
    await stage.rest()
    assert [record for record in caplog.records if record.exc_info] == [], "an outage is expected"
    stage.failure = None
    stage.detector.suspect(broker())
    await stage.rest()
    assert (stage.probes, stage.fenced) == (2, [70])


async def test_answer_of_a_later_process_fences_without_a_probe() -> None:
    stage = DetectorStage(ProbeOutcome.ACCEPTED)
    await stage.detector.fence_now(broker())
    await stage.detector.fence_now(broker())
    assert (stage.probes, stage.fenced) == (0, [70])


async def test_broker_that_unregistered_itself_does_not_count_as_fenced() -> None:
    stage = DetectorStage(ProbeOutcome.REFUSED)
    stage.registered = False
    stage.detector.suspect(broker())
    await stage.rest()
    stage.registered = True
    stage.detector.suspect(broker())
    await stage.rest()
    assert stage.fenced == [70]
