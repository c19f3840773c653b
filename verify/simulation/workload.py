"""Run the clients of chaos in a simulation: each in a process of its own, at a rate that a simulated minute permits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from tidelog.aio import Admin
from tidelog.client.environment import ClientEnvironment
from tidelog.errors import TidelogError, TopicAlreadyExistsError
from tidelog.history.operations import Client
from verify.chaos.clients.administrator import Administrator
from verify.chaos.clients.client_context import ClientContext, History
from verify.chaos.clients.client_factory import MOST_LIVES, MOST_PRODUCERS, RunningClient
from verify.chaos.clients.committing import CommittedReader, Committer
from verify.chaos.clients.direct import DirectReader
from verify.chaos.clients.lookup_client import LookupClient
from verify.chaos.clients.members import MemberClient
from verify.chaos.clients.producing import ProducingClient
from verify.chaos.clients.reading import RandomSeekReader, ResetReader, TailReader
from verify.chaos.clients.trimming import Trimmer
from verify.chaos.load import LoadTopic, Times
from verify.simulation.cluster.cluster import ClientProcess, Cluster
from verify.simulation.cluster.health_check import ask_to_serve

TOPICS = (
    LoadTopic("orders", 2, share=3),
    LoadTopic("clicks", 1, share=1, keys=20),
    LoadTopic("scattered", 1, share=1, times=Times.SCATTERED),
)
#: A topic with few keys. Its logs are compacted as soon as they have a closed segment.
COMPACTED = LoadTopic(
    "latest",
    1,
    share=3,
    keys=5,
    configs={"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.1"},
)
#: Small segments, so that there are closed segments to damage.
_SMALL = {"segment.bytes": "4096"}
#: The time limit of each client operation, including retries.
TIMEOUT_MS = 10_000
#: The rate of a producer, and the interval in which it sends. Each time costs three brokers and all readers a few
#: messages.
_RATE = 4.0
_TICK_S = 0.8
_PAUSE_S = 1.0
#: A burst for one topic, with a hundred records per batch and one batch per segment.
_BURST, _BURST_EVERY_S = 200.0, 6.0
_BURST_VALUE_BYTES, _BURST_BATCH_BYTES = (12, 24), 4_000
#: Waits are long, because an empty fetch costs as much as one with records.
_POLL_MS = 900
_FETCH_WAIT_MS = 900
#: The index of the client of the health check, above those of all clients of a scenario.
_NOBODYS_PLACE = 100


def _number(place: int, life: int) -> int:
    """Return the number from which a producer derives unique ids."""
    return (place * MOST_LIVES + life) * MOST_PRODUCERS


def _clients(kind: str, context: ClientContext, name: str, number: int, life: int) -> list[RunningClient]:
    """Return the clients of one kind (`verify.simulation.scenario_generator`). `number` is the producer's own.

    `life` is the number of restarts of their process. ValueError for an unknown kind.
    """
    match kind:
        case "producer":
            return [ProducingClient(context, name, number, _RATE, tick_s=_TICK_S)]
        case "unsafe-producer":
            return [ProducingClient(context, name, number, _RATE / 2, acks=1, idempotent=False, tick_s=_TICK_S)]
        case "burst":
            producer = ProducingClient(
                context,
                name,
                number,
                _BURST,
                value_bytes=_BURST_VALUE_BYTES,
                options={"batch_size": _BURST_BATCH_BYTES},
                tick_s=_BURST_EVERY_S,
            )
            return [producer]
        case "tail":
            return [TailReader(context, name, batches=False)]
        case "wanderer":
            return [RandomSeekReader(context, name, pause_s=_PAUSE_S)]
        case "reset":
            return [ResetReader(context, name)]
        case "direct":
            return [DirectReader(context, name, pause_s=_PAUSE_S)]
        case "asker":
            return [LookupClient(context, name, pause_s=_PAUSE_S)]
        case "committer":
            tps = context.tps[:2]
            return [
                Committer(context, name, "registers", tps, by_request=True, life=life, pause_s=_PAUSE_S),
                CommittedReader(context, f"{name}-reader", ["registers"], tps, pause_s=_PAUSE_S),
            ]
        case "member":
            return [MemberClient(context, name, "members", "cooperative-sticky", longest_work_s=_PAUSE_S)]
        case "administrator":
            return [Administrator(context, name, election_interval_ms=15_000)]
        case "trimmer":
            return [Trimmer(context, name)]
    raise ValueError(f"unknown kind of client: {kind!r}")


class Workload:
    """The clients of a scenario.

    topics    the topics that all clients use
    configs   the configs of all topics, which override their own
    """

    def __init__(
        self,
        cluster: Cluster,
        open_history: Callable[[Client], History],
        topics: Sequence[LoadTopic],
        configs: Mapping[str, str],
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._configs = configs
        self._open_history = open_history
        self._context: dict[ClientProcess, ClientContext] = {}
        self._running: dict[ClientProcess, int] = {}
        self._ending = False

    async def create_topics(self, client: ClientProcess) -> None:
        """Create the topics, with three replicas each. Repeat each request until the topic exists."""
        environment = ClientEnvironment(clock=client.clock, opener=client.open, rng=client.rng)
        async with environment.create(Admin, self._cluster.bootstrap, client_id="workload") as admin:
            for topic in self._topics:
                wanted = replace(topic, configs={**_SMALL, **topic.configs, **self._configs})
                while True:
                    with suppress(TopicAlreadyExistsError):
                        try:
                            await admin.create_topics([wanted.new_topic(3)], 10_000)
                        except TopicAlreadyExistsError:
                            raise
                        except TidelogError:
                            await asyncio.sleep(0.2)
                            continue
                    break

    def start(self, client: ClientProcess, place: int, kind: str) -> None:
        """Run clients of this kind in the process, now and after each restart. `place` is the client's index in the
        scenario.

        Clients that raise an error count as a failure of the simulation.
        """

        async def work(client: ClientProcess) -> None:
            if self._ending:
                return
            context = self._context[client] = self._client_context(client, TIMEOUT_MS)
            number = _number(place, client.lives)
            clients = _clients(kind, context, f"{kind}-{place}", number, client.lives)
            self._running[client] = client.lives
            try:
                await asyncio.gather(*(each.run() for each in clients))
            except Exception as error:
                self._cluster.trace.add("failure", f"{kind}-{place}", repr(error))
            finally:
                self._running.pop(client, None)

        client.start(work)

    async def ask_to_serve(self, client: ClientProcess, timeout_ms: int) -> None:
        """Write a record to each partition and commit offsets, as a client that is not part of the scenario.

        Raise the error of a failed request.
        """
        await ask_to_serve(self._client_context(client, timeout_ms), _number(_NOBODYS_PLACE, 0))

    def _client_context(self, client: ClientProcess, timeout_ms: int) -> ClientContext:
        return ClientContext(
            servers=self._cluster.bootstrap,
            topics=self._topics,
            open_history=self._open_history,
            rng=client.rng,
            clock=client.clock,
            now_ns=lambda: self._cluster.timeline.now_ns,
            opener=client.open,
            timeout_ms=timeout_ms,
            poll_ms=_POLL_MS,
            fetch_wait_ms=_FETCH_WAIT_MS,
        )

    def end(self) -> None:
        """Ask all running clients to finish. No client starts after that."""
        self._ending = True
        for client, context in self._context.items():
            if client.process.alive:
                client.process.call_soon(context.stopping.set)

    @property
    def ended(self) -> bool:
        """Return whether no client is running. A client whose process was killed does not count."""
        return not any(client.process.alive and life == client.lives for client, life in self._running.items())
