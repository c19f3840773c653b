"""Sends requests to the coordinator of a group, and finds the coordinator again after it has moved.

Any broker can find the coordinator. The client remembers it until an answer shows that it may have moved:

    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE    another broker, or none, is the coordinator: find it again
    REQUEST_TIMED_OUT, no answer at all           the same; the request may have been executed
    COORDINATOR_LOAD_IN_PROGRESS                  the coordinator is right, but not ready: send the request again
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidelog.client.cluster_client import ClusterClient, KnownCoordinator, is_retriable
from tidelog.client.connections import Purpose
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
from tidelog.protocol.group_messages import FindCoordinatorRequest, FindCoordinatorResponse, OffsetCommitRequest
from tidelog.protocol.messages import Request, Response
from tidelog.quantities import format_duration

_RETRIABLE = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    RequestTimedOutError,
)


async def ask_coordinator(
    client: ClusterClient, group_id: str, request: Request, deadline_ms: int, *, time_limit_ms: int | None = None
) -> Response:
    """Return the coordinator's answer. Repeat the request after the failures in the module's table.

    Such an error counts in the answer itself and in each of its entries. The caller handles all other errors in the
    answer. The request may be sent several times, so it must be idempotent. A commit gets the epoch of the coordinator
    to which it is sent, which is never earlier than that of the group's last commit. `time_limit_ms` limits the wait
    for one broker (default `request_timeout_ms`). Raises TimeoutError with the last error at the deadline,
    NoBrokersError if no broker was ever reached, and errors of the connection that are not retriable.
    """
    clock, started_ms = client.clock, client.clock.monotonic_ms()
    attempt = 0
    while True:
        coordinator = await find_coordinator(client, group_id, deadline_ms)
        if isinstance(request, OffsetCommitRequest):
            # Another broker may name the coordinator of an earlier epoch, which does not know the commits that were
            # sent to the later one and may still arrive there.
            epoch = client.commit_epochs[group_id] = max(coordinator.epoch, client.commit_epochs.get(group_id, -1))
            request = replace(request, coordinator_epoch=epoch)
        try:
            answer = await _ask(client, group_id, coordinator.broker_id, request, deadline_ms, time_limit_ms)
            raise_first(_retriable_errors(answer))
            return answer
        except TidelogError as error:
            if not is_retriable(error):
                raise
            if not isinstance(error, CoordinatorLoadInProgressError):
                client.coordinators.pop(group_id, None)
            if attempt or not isinstance(error, NotCoordinatorError):
                await client.backoff(attempt, deadline_ms)
            if clock.monotonic_ms() >= deadline_ms:
                # Epochs begin again if the topic is created again, so a later commit must accept an earlier epoch.
                client.commit_epochs.pop(group_id, None)
                raise _no_answer(group_id, clock.monotonic_ms() - started_ms, error) from error
        attempt += 1


async def find_coordinator(client: ClusterClient, group_id: str, deadline_ms: int) -> KnownCoordinator:
    """Return the group's known coordinator, or ask any broker for it.

    The request creates the offsets topic if the cluster has none yet. Raises the errors of `ask_coordinator`.
    """
    started_ms = client.clock.monotonic_ms()
    await client.wait_for_metadata(deadline_ms)
    attempt = 0
    while (coordinator := client.coordinators.get(group_id)) is None:
        try:
            client.coordinators[group_id] = await _find(client, group_id, deadline_ms)
        except TidelogError as error:
            if not is_retriable(error):
                raise
            await client.backoff(attempt, deadline_ms)
            if client.clock.monotonic_ms() >= deadline_ms:
                raise _no_answer(group_id, client.clock.monotonic_ms() - started_ms, error) from error
        attempt += 1
    return coordinator


def _no_answer(group_id: str, waited_ms: int, last: TidelogError) -> TimeoutError:
    return TimeoutError(f"group {group_id!r}: no coordinator answered in {format_duration(waited_ms)} (last: {last})")


async def _find(client: ClusterClient, group_id: str, deadline_ms: int) -> KnownCoordinator:
    """Return the coordinator that some broker names; refresh the metadata if its broker id is unknown.

    Raises the broker's error if it names none.
    """
    answer = await client.call_any(FindCoordinatorRequest((group_id,)), deadline_ms)
    assert isinstance(answer, FindCoordinatorResponse)
    found = next((each for each in answer.coordinators if each.key == group_id), None)
    if found is None:
        raise CoordinatorNotAvailableError("the broker's answer does not contain the group")
    if refusal := error_for(found.error_code, found.error_message or ""):
        raise refusal
    if found.broker_id not in client.view.brokers:
        await client.try_refresh(deadline_ms)
    return KnownCoordinator(found.broker_id, found.epoch)


async def _ask(
    client: ClusterClient, group_id: str, broker_id: int, request: Request, deadline_ms: int, time_limit_ms: int | None
) -> Response:
    def moved(view: ClusterView) -> bool:
        partitions = view.partition_count(OFFSETS_TOPIC)
        leader = view.leader_of(OFFSETS_TOPIC, partition_for(group_id, partitions)) if partitions else None
        return leader is not None and leader.broker_id != broker_id

    # The coordinator leads the group's partition of this topic. A broker that hangs is given up when it loses the lead.
    client.track(OFFSETS_TOPIC)
    settings, clock = client.settings, client.clock
    connect_timeout_ms = max(1, min(deadline_ms - clock.monotonic_ms(), settings.request_timeout_ms))
    peer = await client.peer(broker_id, connect_timeout_ms, Purpose.GROUP)
    left_ms = max(1, deadline_ms - clock.monotonic_ms())
    timeout_ms = min(left_ms, settings.request_timeout_ms if time_limit_ms is None else time_limit_ms)
    return await client.call_leader(peer, request, timeout_ms, moved)


def _retriable_errors(answer: Response) -> Iterator[BrokerError]:
    """Yield the errors of the answer and its entries that concern the coordinator's choice, and not the group."""
    entries = getattr(answer, "partitions", ()) or getattr(answer, "members", ()) or getattr(answer, "groups", ())
    refusals = {getattr(each, "error_code", 0): getattr(each, "error_message", None) for each in (answer, *entries)}
    for code, message in refusals.items():
        error = error_for(code, message or "")
        if isinstance(error, _RETRIABLE):
            yield error
