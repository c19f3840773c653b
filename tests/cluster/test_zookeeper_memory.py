"""An answered request to ZooKeeper leaves nothing behind. A broker would keep it until a garbage collection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from weakref import ref

import pytest

from cluster.zookeeper.kazoo_store import ZooKeeperStore
from cluster.zookeeper.store import NoNodeError
from tests.cluster.stores import Real
from tests.reference_cycles import until_freed, without_collections
from tidelog.local.zookeeper import EmbeddedZooKeeper


async def succeed(store: ZooKeeperStore) -> None:
    assert await store.children("/") == []


async def fail(store: ZooKeeperStore) -> None:
    with pytest.raises(NoNodeError):
        await store.get("/missing")


@pytest.mark.parametrize("ask", [succeed, fail])
async def test_answer_is_freed_once_it_is_read(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch, ask: Callable[[ZooKeeperStore], Awaitable[None]]
) -> None:
    store = await Real(zookeeper.hosts).connect()
    handler, answers = store._client.handler, []
    make = handler.async_result

    def note() -> object:
        answers.append(ref(made := make()))
        return made

    monkeypatch.setattr(handler, "async_result", note)
    with without_collections():
        await ask(store)
        assert len(answers) == 1
        await until_freed(*answers)
    await store.close()
