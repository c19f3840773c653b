"""Test the messages to and from the kernel's packet queues, byte by byte."""

from __future__ import annotations

import pytest

from verify.chaos.faults.network.delaying import configuration, packet_ids, verdict


def packet(packet_id: int, before: bytes = b"") -> bytes:
    """Return the kernel's message about a packet; the attributes `before` precede its header."""
    attributes = before + bytes.fromhex("0b000100") + packet_id.to_bytes(4, "big") + bytes.fromhex("08000300")
    length = 16 + 4 + len(attributes)
    return length.to_bytes(4, "little") + bytes.fromhex("0003000000000000") + bytes(4) + bytes(4) + attributes


def test_queue_is_bound_and_only_headers_are_copied() -> None:
    bind, copy, most = configuration(7)
    assert bind.hex() == "1c000000020301000000000000000000000000070800010001000002"
    assert copy[20:].hex() == "090002000000004001000000"
    assert most[20:].hex() == "08000300000186a0"


def test_verdict_releases_a_packet() -> None:
    assert verdict(7, 258).hex() == "20000000010301000000000000000000000000070c0002000000000100000102"


def test_packet_ids_of_all_messages_in_a_datagram_are_found() -> None:
    strange = bytes.fromhex("05000a00") + b"\1" + bytes(3)
    assert list(packet_ids(packet(1) + packet(2, strange))) == [1, 2]
    assert list(packet_ids(b"")) == []


def test_kernel_refusal_raises_an_error() -> None:
    refusal = bytes.fromhex("24000000020000000000000000000000ffffffff") + bytes(16)
    with pytest.raises(OSError, match="refuses the queue"):
        list(packet_ids(refusal))
    acknowledged = bytes.fromhex("2400000002000000000000000000000000000000") + bytes(16)
    assert list(packet_ids(acknowledged)) == []
