"""A question for the coordinator of a group, whichever broker that is by now.

Who it is, any broker tells; the client remembers it until the answers say otherwise:

    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE    it is elsewhere, or nowhere yet: find it again
    REQUEST_TIMED_OUT, no answer at all           the same; what was asked for may have been done
    COORDINATOR_LOAD_IN_PROGRESS                  it is the one, and not ready: ask it again
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.client.cluster_client import ClusterClient, is_retriable
from tidelog.client.metadata import ClusterView
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    RequestTimedOutError,
    TidelogError,
    TimeoutError,
    error_for,
    raise_first,
)
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from tidelog.protocol.group_messages import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages import Request, Response
from tidelog.quantities import format_duration

_PASSING = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    RequestTimedOutError,
)


async def ask_coordinator(
    client: ClusterClient, group_id: str, request: Request, deadline_ms: int, *, patience_ms: int | None = None
) -> Response:
    """Its answer, asked for again while it says "not I" or "not now", at the top or of any entry.

    The request may be sent several times, so it must be one that may be repeated. `patience_ms` with one broker is
    `request_timeout_ms` unless given. Errors of the group itself are the caller's to read. TimeoutError at the
    deadline has the last reason; NoBrokersError where no broker was ever reached.
    """
    clock, started_ms = client.clock, client.clock.monotonic_ms()
    attempt = 0
    while True:
        broker_id = await find_coordinator(client, group_id, deadline_ms)
        try:
            answer = await _ask(client, group_id, broker_id, request, deadline_ms, patience_ms)
            raise_first(_passing_refusals(answer))
            return answer
        except TidelogError as error:
            if not is_retriable(error):
                raise
            if not isinstance(error, CoordinatorLoadInProgressError):
                client.coordinators.pop(group_id, None)
            if attempt or not isinstance(error, NotCoordinatorError):
                await client.backoff(attempt, deadline_ms)
            if clock.monotonic_ms() >= deadline_ms:
                raise _no_answer(group_id, clock.monotonic_ms() - started_ms, error) from error
        attempt += 1


async def find_coordinator(client: ClusterClient, group_id: str, deadline_ms: int) -> int:
    """The broker that was found last, or is found now. Errors as of `ask_coordinator`."""
    started_ms = client.clock.monotonic_ms()
    await client.wait_for_metadata(deadline_ms)
    attempt = 0
    while (broker_id := client.coordinators.get(group_id)) is None:
        try:
            client.coordinators[group_id] = await _find(client, group_id, deadline_ms)
        except TidelogError as error:
            if not is_retriable(error):
                raise
            await client.backoff(attempt, deadline_ms)
            if client.clock.monotonic_ms() >= deadline_ms:
                raise _no_answer(group_id, client.clock.monotonic_ms() - started_ms, error) from error
        attempt += 1
    return broker_id


def _no_answer(group_id: str, waited_ms: int, last: TidelogError) -> TimeoutError:
    return TimeoutError(f"group {group_id!r}: no coordinator answered in {format_duration(waited_ms)} (last: {last})")


async def _find(client: ClusterClient, group_id: str, deadline_ms: int) -> int:
    """What some broker says; its refusal is raised."""
    answer = await client.call_any(FindCoordinatorRequest((group_id,)), deadline_ms)
    assert isinstance(answer, FindCoordinatorResponse)
    found = next((each for each in answer.coordinators if each.key == group_id), None)
    if found is None:
        raise CoordinatorNotAvailableError("the broker's answer leaves the group out")
    if refusal := error_for(found.error_code, found.error_message or ""):
        raise refusal
    if found.broker_id not in client.view.brokers:
        await client.try_refresh(deadline_ms)
    return found.broker_id


async def _ask(
    client: ClusterClient, group_id: str, broker_id: int, request: Request, deadline_ms: int, patience_ms: int | None
) -> Response:
    def moved(view: ClusterView) -> bool:
        partitions = view.partition_count(OFFSETS_TOPIC)
        leader = view.leader_of(OFFSETS_TOPIC, partition_for(group_id, partitions)) if partitions else None
        return leader is not None and leader.broker_id != broker_id

    # The group's partition of this topic is led by its coordinator: a hung one is given up when it leads no more.
    client.track(OFFSETS_TOPIC)
    settings, clock = client.settings, client.clock
    peer = await client.peer(broker_id, max(1, min(deadline_ms - clock.monotonic_ms(), settings.request_timeout_ms)))
    left_ms = max(1, deadline_ms - clock.monotonic_ms())
    timeout_ms = min(left_ms, settings.request_timeout_ms if patience_ms is None else patience_ms)
    return await client.call_leader(peer, request, timeout_ms, moved)


def _passing_refusals(answer: Response) -> Iterator[BrokerError]:
    """Those that say nothing of the group, but of who coordinates it."""
    entries = getattr(answer, "partitions", ()) or getattr(answer, "members", ()) or getattr(answer, "groups", ())
    refusals = {getattr(each, "error_code", 0): getattr(each, "error_message", None) for each in (answer, *entries)}
    for code, message in refusals.items():
        error = error_for(code, message or "")
        if isinstance(error, _PASSING):
            yield error
