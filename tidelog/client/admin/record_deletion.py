"""Send the admin's requests to delete a partition's oldest records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.leader_requests import Asked, PerLeaderRequest
from tidelog.errors import BrokerError, RequestTimedOutError, TimeoutError, error_for
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import (
    DeletedRecords,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from tidelog.protocol.messages import Response
from tidelog.quantities import MOST_NAMED, first_of

#: The leader's timeout is this share of the client's, so that the leader's error arrives before the client gives up.
_ANSWER_MARGIN = 0.9


async def delete_records(
    client: ClusterClient, before: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int]:
    """Delete the records below each partition's offset in `before`; −1: all below the high watermark.

    Returns each partition's new log start offset once every live replica has applied it. Raises the first final error
    of a leader, and TimeoutError if a leader or a live replica does not follow in time.
    """
    deadline_ms = client.clock.monotonic_ms() + timeout_ms
    starts: dict[TopicPartition, int] = {}
    left_ms = timeout_ms
    while True:
        wanted = {tp: offset for tp, offset in before.items() if tp not in starts}
        answers = await _question(client, left_ms).ask(client, wanted, left_ms)
        starts |= {tp: answer.low_watermark for tp, answer in answers.items() if not answer.error_code}
        late = sorted(tp for tp, answer in answers.items() if answer.error_code)
        left_ms = deadline_ms - client.clock.monotonic_ms()
        if not late:
            return starts
        if left_ms <= timeout_ms * (1 - _ANSWER_MARGIN):
            named = first_of(list(map(str, late)), MOST_NAMED)
            raise TimeoutError(f"delete records of {named}: some live replicas have not followed in {timeout_ms} ms")


def _question(client: ClusterClient, timeout_ms: int) -> PerLeaderRequest[int, DeletedRecords]:
    time_limit_ms = max(1, int(min(timeout_ms, client.settings.request_timeout_ms) * _ANSWER_MARGIN))

    def make(asked: Asked[int]) -> DeleteRecordsRequest:
        parts = tuple(DeleteRecordsPartition(*tp, offset) for tp, offset, _ in asked)
        return DeleteRecordsRequest(parts, time_limit_ms)

    return PerLeaderRequest("delete records", make, _read)


def _read(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, DeletedRecords]]:
    assert isinstance(response, DeleteRecordsResponse)
    for each in response.partitions:
        # A replica that did not follow in time is treated as an answer, because an immediate retry would not help.
        late = each.error_code == RequestTimedOutError.code
        error = None if late else error_for(each.error_code, each.error_message or "")
        yield TopicPartition(each.topic, each.partition), error, each
