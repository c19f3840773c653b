"""Ask each broker of a cluster about itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tidelog.client.diagnosis.doctor_checks import BrokerAnswer, ClusterFacts
from tidelog.clock import Clock
from tidelog.errors import TidelogError, UnsupportedVersionError, error_for
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import MetadataRequest, MetadataResponse, Request, Response
from tidelog.protocol.operator_messages import DescribeBrokerRequest, DescribeBrokerResponse

_CLIENT_ID = "tidelog-doctor"


async def ask_cluster(
    bootstrap: Sequence[Endpoint], expected: Mapping[int, Endpoint], clock: Clock, timeout_ms: int
) -> ClusterFacts:
    """Ask the bootstrap addresses for metadata, then each expected or known broker about itself.

    Errors of brokers are in the result. Each request may take `timeout_ms`. A bootstrap address that does not answer,
    and is no expected or known broker's, is a target of its own.

    expected   brokers by id that should run, whether the cluster knows them or not
    """
    asked: dict[str, Endpoint] = {f"broker {broker_id}": endpoint for broker_id, endpoint in expected.items()}
    responses = await asyncio.gather(*(_metadata(endpoint, timeout_ms) for endpoint in bootstrap))
    known = [each for each in responses if each is not None]
    # The largest answer is used, because a broker that has just started knows little.
    metadata = max(known, key=lambda each: (len(each.brokers), len(each.topics)), default=None)
    for broker in metadata.brokers if metadata else ():
        asked.setdefault(f"broker {broker.broker_id}", Endpoint(broker.host, broker.port))
    for endpoint, answered in zip(bootstrap, responses, strict=True):
        if answered is None and endpoint not in asked.values():
            asked[str(endpoint)] = endpoint
    answers = await asyncio.gather(*(_describe(endpoint, clock, timeout_ms) for endpoint in asked.values()))
    return ClusterFacts(metadata, dict(sorted(zip(asked, answers, strict=True))))


async def _metadata(endpoint: Endpoint, timeout_ms: int) -> MetadataResponse | None:
    try:
        connection = await _open(endpoint, timeout_ms)
        answer = await _ask(connection, MetadataRequest(), timeout_ms)
    except TidelogError:
        return None
    assert isinstance(answer, MetadataResponse)
    return answer


async def _describe(endpoint: Endpoint, clock: Clock, timeout_ms: int) -> BrokerAnswer:
    try:
        connection = await _open(endpoint, timeout_ms)
        asked_ms, wall_ms = clock.monotonic_ms(), clock.now_ms()
        answer = await _ask(connection, DescribeBrokerRequest(), timeout_ms)
        took_ms = clock.monotonic_ms() - asked_ms
    except UnsupportedVersionError:
        return BrokerAnswer(endpoint, None, cluster_kind=connection.cluster_kind)
    except TidelogError as error:
        return BrokerAnswer(endpoint, None, str(error) or type(error).__name__)
    assert isinstance(answer, DescribeBrokerResponse)
    if refusal := error_for(answer.error_code):
        return BrokerAnswer(endpoint, None, str(refusal))
    # The broker read its clock at an unknown time between the request and the answer.
    ahead_ms, uncertainty_ms = answer.now_ms - (wall_ms + took_ms / 2), took_ms / 2 + 1
    return BrokerAnswer(endpoint, answer, "", ahead_ms, uncertainty_ms, connection.cluster_kind)


async def _open(endpoint: Endpoint, timeout_ms: int) -> Connection:
    return await Connection.open(endpoint, client_id=_CLIENT_ID, timeout_ms=timeout_ms)


async def _ask(connection: Connection, request: Request, timeout_ms: int) -> Response:
    try:
        return await connection.call(request, timeout_ms=timeout_ms)
    finally:
        connection.close()
