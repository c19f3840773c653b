"""The controller's line to one broker goes on after whatever it can, and says so where it cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.effects import SendMetadata
from cluster.state import BrokerRegistration
from node.controller_channel import ControllerChannel
from tests.virtual_time import on_virtual_time, until
from tidelog.control_messages import UpdateMetadataResponse
from tidelog.errors import ProtocolError
from tidelog.listeners import BROKERS
from tidelog.model import Endpoint

BROKER = BrokerRegistration(1, {BROKERS: Endpoint("h", 1)}, 10)


class Owner:
    """Builds no real requests; `at_answer` is raised when an answer comes."""

    def __init__(self, at_answer: Exception | None = None) -> None:
        self.moment = 0
        self.failures: list[BaseException] = []
        self._at_answer = at_answer

    def build(self, batch: Any) -> Any:
        return batch

    def on_answer(self, *_: object) -> None:
        if self._at_answer is not None:
            raise self._at_answer

    def on_gone(self, broker: BrokerRegistration) -> None: ...

    def on_replaced(self, broker: BrokerRegistration) -> None: ...

    def on_fenced(self) -> None: ...

    def on_failed(self, error: BaseException) -> None:
        self.failures.append(error)


def channel_of(owner: Owner, *refusals: Exception) -> ControllerChannel:
    """One to a broker that answers when each of these was raised."""
    left = list(refusals)

    async def call(*_: object, **__: object) -> UpdateMetadataResponse:
        if left:
            raise left.pop()
        return UpdateMetadataResponse(0)

    async def opened(_: Endpoint) -> Any:
        line = SimpleNamespace(peer=SimpleNamespace(broker_epoch=10), closed=False, call=call)
        line.on_closed = line.close = lambda *_: None
        return line

    return ControllerChannel(BROKER, opened, owner)


@on_virtual_time
async def test_what_could_not_be_sent_once_is_sent_again() -> None:
    owner = Owner()
    channel = channel_of(owner, ProtocolError("too long"))
    channel.tell(SendMetadata((1,)))
    await until(lambda: channel.outbox.empty)
    assert not owner.failures
    channel.close()


@on_virtual_time
async def test_a_channel_that_nobody_can_go_on_with_says_so() -> None:
    owner = Owner(at_answer=ValueError("a bug"))
    channel_of(owner).tell(SendMetadata((1,)))
    await until(lambda: bool(owner.failures))
    assert isinstance(owner.failures[0], ValueError)
