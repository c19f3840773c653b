"""Query ZooKeeper for the state of the cluster under test, through kazoo."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tidelog.errors import LocalError
from tidelog.model import TopicPartition
from verify.chaos.fault import PartitionView, View

_ANSWER_S = 2.0
_SESSION_S = 5.0


class ZooKeeperReader:
    """A reader of ZooKeeper's state, which connects in the background from its creation on.

    Its calls block for seconds at most, and only one thread may use it.
    """

    def __init__(self, hosts: str) -> None:
        # kazoo logs each lost connection, and here connections are lost on purpose
        logger = logging.getLogger("verify.chaos.targets.zookeeper")
        logger.setLevel(logging.CRITICAL)
        self._client = KazooClient(
            hosts, timeout=_SESSION_S, connection_retry={"max_tries": -1, "max_delay": 0.5}, logger=logger
        )
        self._client.start_async()

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def view(self, tps: Sequence[TopicPartition]) -> View:
        """Return the current view. The values come from several reads, so changes in between may show only in part.

        Raise LocalError at once if there is no connection to ZooKeeper, and after 2 s without an answer.
        """
        t = time.monotonic_ns()
        if not self._client.connected:
            raise LocalError("no connection to ZooKeeper")
        asked = {tp: self._client.get_async(_state_path(tp)) for tp in tps}
        controller = self._client.get_async("/controller")
        controller_epoch = self._client.get_async("/controller_epoch")
        registered = self._client.get_children_async("/brokers/ids")
        deadline = time.monotonic() + _ANSWER_S
        partitions = {tp: _partition(found) for tp, answer in asked.items() if (found := _get(answer, deadline))}
        found_controller, found_epoch = _get(controller, deadline), _get(controller_epoch, deadline)
        ids = sorted(map(int, _get(registered, deadline) or ()))
        stats = {broker_id: self._client.exists_async(f"/brokers/ids/{broker_id}") for broker_id in ids}
        epochs = {broker_id: stat.czxid for broker_id, asked in stats.items() if (stat := _get(asked, deadline))}
        return View(
            t,
            partitions,
            json.loads(found_controller[0])["brokerid"] if found_controller else -1,
            int(found_epoch[0]) if found_epoch else -1,
            epochs,
        )


class AsyncZooKeeperReader:
    """A `ZooKeeperReader` on a thread of its own, so that an event loop can await the views."""

    def __init__(self, hosts: str) -> None:
        self._reader = ZooKeeperReader(hosts)
        self._executor = ThreadPoolExecutor(1, "chaos-looking")

    async def view(self, tps: Sequence[TopicPartition]) -> View:
        """Return the current view. Raise LocalError if ZooKeeper does not answer in time. Queries run one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._reader.view, tps)

    def close(self) -> None:
        """Close the reader after the queries in progress, without waiting for that. No query may follow."""
        self._executor.submit(self._reader.close)
        self._executor.shutdown(wait=False)


def _get(asked: Any, deadline: float) -> Any:
    """Return the result, or None for a znode that does not exist. Raise LocalError without an answer until the
    deadline.
    """
    try:
        return asked.get(timeout=max(0.0, deadline - time.monotonic()))
    except NoNodeError:
        return None
    except (KazooException, KazooTimeoutError) as error:
        raise LocalError(f"ZooKeeper does not answer: {type(error).__name__}") from None


def _partition(found: Any) -> PartitionView:
    data, stat = found
    state = json.loads(data)
    return PartitionView(state["leader"], state["leader_epoch"], tuple(state["isr"]), stat.version)


def _state_path(tp: TopicPartition) -> str:
    return f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
