"""Waiting for ZooKeeper's answer takes no file descriptor.

Otherwise a broker without free descriptors would lose its session.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.zookeeper.kazoo_store import PollingHandler
from tests.cluster.stores import Real
from tidelog.local.zookeeper import EmbeddedZooKeeper


@contextmanager
def no_more_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.close(lowest_free)


def test_store_works_without_free_file_descriptors() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, no_more_files():
        handler = PollingHandler()
        assert handler.select([ours], [], [], 0) == ([], [], [])
        theirs.send(b"x")
        assert handler.select([ours], [], [], 5) == ([ours], [], [])
        assert handler.select([], [ours], [], 5) == ([], [ours], [])


async def test_a_store_waits_so(zookeeper: EmbeddedZooKeeper) -> None:
    store = await Real(zookeeper.hosts).connect()
    assert isinstance(store._client.handler, PollingHandler)
    await store.close()
