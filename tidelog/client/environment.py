"""Hold the external dependencies of a client: its clock, its network and its random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.client.connections import Opener, open_connection
from tidelog.client.settings import BootstrapServers
from tidelog.clock import Clock, SystemClock

if TYPE_CHECKING:
    from tidelog.groups.membership.rebalance_listener import Caller


class _Client(Protocol):
    @property
    def _set_up(self) -> Callable[..., None]: ...


C = TypeVar("C", bound=_Client)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEnvironment:
    """The clock, network and random numbers of the machine, or those of a test, the simulator or chaos.

    rng             must differ from that of each other client of the cluster, because it names committers
    call_listener   calls a consumer's rebalance listener in the thread of the consumer's user; None calls it in the
                    task of the call
    """

    clock: Clock = field(default_factory=SystemClock)
    opener: Opener = open_connection
    rng: random.Random = field(default_factory=random.Random)
    call_listener: Caller | None = None

    def create(
        self, cls: type[C], bootstrap_servers: BootstrapServers | None = None, *topics: str, **options: Any
    ) -> C:
        """Return a client of this class in this environment; the other arguments are those of its constructor.

        Only a consumer may have topics.
        """
        client = cls.__new__(cls)
        client._set_up(bootstrap_servers, options, self, *topics)
        return client
