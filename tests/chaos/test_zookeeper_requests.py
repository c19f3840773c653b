"""The kinds of ZooKeeper writes that faults recognise, in the bytes that our ZooKeeper client really sends."""

from __future__ import annotations

from kazoo.protocol.serialization import Create, Delete, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from cluster.zookeeper import znodes
from verify.chaos.faults.network import answers
from verify.chaos.targets.zookeeper_proxy import MULTI, SET_DATA, Request

IDS = SetData(znodes.BROKER_IDS, b"", -1)
STATE = SetData("/brokers/topics/t/partitions/0/state", b"{}", 3)


def multi(*parts: object) -> Request:
    """Return the proxy's view of a multi of these parts."""
    return Request(1, MULTI, b"\0" * 8 + bytes(Transaction(parts).serialize()))


REGISTRATION = multi(Create("/brokers/ids/1", b"{}", OPEN_ACL_UNSAFE, 1), IDS)
FENCE = multi(Delete("/brokers/ids/1", 0), IDS)
ELECTION = multi(STATE)
ISR_CHANGE = Request(1, SET_DATA, b"\0" * 8 + bytes(STATE.serialize()))


def kind_of(request: Request) -> list[str]:
    return [kind for kind, is_meant in answers._WRITES.items() if is_meant(request)]


def test_each_write_is_recognised_as_one_kind() -> None:
    assert kind_of(REGISTRATION) == ["a registration"]
    assert kind_of(ELECTION) == ["an election"]
    assert kind_of(ISR_CHANGE) == ["a change of an ISR"]


def test_removal_of_a_registration_is_none_of_the_kinds() -> None:
    assert kind_of(FENCE) == []
