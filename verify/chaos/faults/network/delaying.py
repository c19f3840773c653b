"""Delay each packet of an iptables queue by a random time, so that packets overtake each other.

The program replaces `tc netem` for kernels without it:

    python -m verify.chaos.faults.network.delaying QUEUE LEAST_MS MOST_MS SEED

The program runs in the network namespace until it is killed or its parent process has ended. The rule's
`--queue-bypass` lets all packets pass after that. A line on standard output reports that the program is ready. The
messages are those of nfnetlink_queue (linux/netfilter/nfnetlink_queue.h).
"""

from __future__ import annotations

import heapq
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from select import select
from struct import Struct

NETLINK_NETFILTER = 12
_QUEUE = 3 << 8
_PACKET, _VERDICT, _CONFIG = _QUEUE | 0, _QUEUE | 1, _QUEUE | 2
_REQUEST = 1
_ERROR = 2
#: Attributes. A packet's message has a header, which holds the id. Messages to the kernel hold the verdict, or the
#: command, the bytes to copy of each packet, and the length of the queue.
_PACKET_HEADER, _VERDICT_HEADER = 1, 2
_COMMAND, _PARAMETERS, _MOST_WAITING = 1, 2, 3
_BIND, _COPY_HEADER = 1, 1
_ACCEPT = 1
_WAITING = 100_000

_NLMSG = Struct("=IHHII")
_NFGEN = Struct(">BBH")
_ATTRIBUTE = Struct("=HH")


def message(kind: int, queue: int, *attributes: tuple[int, bytes]) -> bytes:
    """Return a netlink message of this kind to the kernel, for a queue, with attributes (number, value)."""
    body = _NFGEN.pack(0, 0, queue) + b"".join(_attribute(number, value) for number, value in attributes)
    return _NLMSG.pack(_NLMSG.size + len(body), kind, _REQUEST, 0, 0) + body


def configuration(queue: int) -> list[bytes]:
    """Return the messages to the kernel that bind this program to the queue, and set its length, in the order to send.

    The kernel then reports each packet without its bytes, by a message whose header attribute has the packet's id.
    """
    return [
        message(_CONFIG, queue, (_COMMAND, bytes([_BIND, 0, 0, 2]))),
        message(_CONFIG, queue, (_PARAMETERS, (64).to_bytes(4, "big") + bytes([_COPY_HEADER]))),
        message(_CONFIG, queue, (_MOST_WAITING, _WAITING.to_bytes(4, "big"))),
    ]


def verdict(queue: int, packet_id: int) -> bytes:
    """Return the message that lets the kernel send a delayed packet on."""
    return message(_VERDICT, queue, (_VERDICT_HEADER, _ACCEPT.to_bytes(4, "big") + packet_id.to_bytes(4, "big")))


def packet_ids(data: bytes) -> Iterator[int]:
    """Yield the ids of all packets in a datagram from the kernel. Raise OSError if the kernel reports an error."""
    while len(data) >= _NLMSG.size:
        length, kind, _, _, _ = _NLMSG.unpack_from(data)
        if kind == _ERROR and (number := int.from_bytes(data[16:20], sys.byteorder, signed=True)):
            raise OSError(-number, "the kernel refuses the queue")
        if kind == _PACKET:
            position = _NLMSG.size + _NFGEN.size
            while position + _ATTRIBUTE.size <= length:
                size, number = _ATTRIBUTE.unpack_from(data, position)
                if number == _PACKET_HEADER:
                    yield int.from_bytes(data[position + 4 : position + 8], "big")
                    break
                position += max(4, size + 3 & ~3)
        data = data[max(_NLMSG.size, length + 3 & ~3) :]


def delay(queue: int, least_ms: float, most_ms: float, seed: int) -> None:
    """Delay each packet of the queue by `least_ms` to `most_ms` until the parent process has ended. Print "ready"
    first.

    Raise OSError if the kernel refuses the queue.
    """
    rng, parent = random.Random(seed), os.getppid()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        for each in configuration(queue):
            kernel.send(each)
        print("ready", flush=True)
        waiting: list[tuple[float, int]] = []
        while os.getppid() == parent:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                kernel.send(verdict(queue, heapq.heappop(waiting)[1]))
            readable, _, _ = select([kernel], [], [], min(1.0, waiting[0][0] - now) if waiting else 1.0)
            if readable:
                now = time.monotonic()
                for packet_id in packet_ids(kernel.recv(1 << 16)):
                    heapq.heappush(waiting, (now + rng.uniform(least_ms, most_ms) / 1000, packet_id))


def _attribute(number: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), number) + value + bytes(-len(value) % 4)


if __name__ == "__main__":
    delay(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
