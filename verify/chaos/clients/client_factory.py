"""Create the clients of one process of a load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from verify.chaos.clients.administrator import Administrator
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.committing import CommittedReader, Committer
from verify.chaos.clients.direct import DirectReader
from verify.chaos.clients.lookup_client import LookupClient
from verify.chaos.clients.members import MemberClient
from verify.chaos.clients.producing import ProducingClient
from verify.chaos.clients.reading import RandomSeekReader, ResetReader, TailReader
from verify.chaos.load import Load

#: The limits of producers per start of a process, and of starts per process, so that all ids are unique.
MOST_PRODUCERS = 16
MOST_LIVES = 4_096
_MOST_PROCESSES = (1 << 23) // (MOST_PRODUCERS * MOST_LIVES)
#: The acks of the producers that are not idempotent, by process.
_UNSAFE_ACKS = (1, -1, 0)
#: The number of partitions whose offsets a committer raises.
_REGISTERS = 4


class RunningClient(Protocol):
    """A client whose `run` returns by itself some time after `ClientContext.stopping` is set."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None: ...


def first_producer(load: Load, process: int, life: int) -> int:
    """Return the least number of a producer in this start of this process, from which unique record ids are derived.

    Raise ValueError if the numbers are too high for unique record ids.
    """
    if process >= _MOST_PROCESSES or life >= MOST_LIVES or load.producers >= MOST_PRODUCERS:
        raise ValueError(
            f"{process + 1} processes, {life + 1} lives, {load.producers} producers: unique record ids are exhausted"
        )
    return (process * MOST_LIVES + life) * MOST_PRODUCERS


def clients_of(context: ClientContext, load: Load, process: int = 0, life: int = 0) -> Iterator[RunningClient]:
    """Yield the clients of process number `process` in its start number `life`, both from 0. Each yielded client,
    except the administrator, has opened its history. The caller runs all of them.

    Raise ValueError at the first `next` if the numbers are too high for unique record ids.
    """
    first = first_producer(load, process, life)
    prefix = f"clients-{process}"
    process_rate = load.rate / load.all_processes
    unsafe_rate = process_rate * load.unsafe_share / 100
    rate = (process_rate - unsafe_rate) / load.producers
    for number in range(load.producers):
        name = f"{prefix}-producer-{number}"
        yield ProducingClient(context, name, first + number, rate, value_bytes=load.value_bytes)
    if unsafe_rate:
        number, acks = first + load.producers, _UNSAFE_ACKS[process % len(_UNSAFE_ACKS)]
        yield ProducingClient(context, f"{prefix}-producer-unsafe", number, unsafe_rate, acks=acks, idempotent=False)
    yield TailReader(context, f"{prefix}-tail", batches=process % 2 == 0)
    yield RandomSeekReader(context, f"{prefix}-wanderer")
    yield ResetReader(context, f"{prefix}-reset")
    yield DirectReader(context, f"{prefix}-direct")
    yield LookupClient(context, f"{prefix}-asker")
    for strategy, group in load.member_groups.items():
        yield MemberClient(context, f"{prefix}-member-{strategy}", group, strategy)
    groups = load.registers(process)
    tps = context.tps[:_REGISTERS]
    for number, group in enumerate(groups):
        by_request = number % 2 == 0
        yield Committer(context, f"{prefix}-committer-{number}", group, tps, by_request=by_request, life=life)
    if groups:
        yield CommittedReader(context, f"{prefix}-committed", groups, tps)
    if process == 0 and load.has_administrator:
        yield Administrator(
            context,
            f"{prefix}-administrator",
            election_interval_ms=load.election_interval_ms,
            reassignment_interval_ms=load.reassignment_interval_ms,
        )
