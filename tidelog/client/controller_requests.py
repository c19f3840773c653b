"""Send the admin's requests to the current controller, and wait until the metadata shows their outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from tidelog.client.cluster_client import ClusterClient, is_retriable
from tidelog.client.metadata import ClusterView
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    BrokerNotAvailableError,
    NotControllerError,
    NotLeaderOrFollowerError,
    TidelogError,
    TimeoutError,
    raise_first,
)
from tidelog.model import NO_LEADER
from tidelog.protocol.messages import Request, Response
from tidelog.quantities import MOST_NAMED, plural, ranges_of

R = TypeVar("R", bound=Response)

#: Errors that another broker may not return; every other error of the controller is final.
_ASK_AGAIN = (NotControllerError, BrokerNotAvailableError)

#: The controller's timeout is this share of the client's, so that its error arrives before the client gives up.
_ANSWER_MARGIN = 0.9


class ControllerRequests:
    """Sends requests to the controller. Each call raises TimeoutError at its deadline."""

    def __init__(self, client: ClusterClient, clock: Clock, request_timeout_ms: int) -> None:
        self._client = client
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms

    async def ask(
        self,
        make: Callable[[int], Request],
        cls: type[R],
        deadline_ms: int,
        *,
        refusals: Callable[[R], Iterable[TidelogError | None]] = lambda answer: (),
        done_before: tuple[type[TidelogError], ...] = (),
    ) -> R:
        """Return the controller's answer; ask again if no answer comes, or if another broker is the controller now.

        make          returns the request, given the controller's timeout (ms), which is 90 % of this client's
        refusals      returns the error or None of each requested item, always in the same order; the first final error
                      is raised, with the others
        done_before   errors which mean that an earlier attempt, whose answer was lost, has succeeded; the answer may
                      then have them

        Raises NoBrokersError if no broker was ever reached.
        """
        client = self._client
        await client.wait_for_metadata(deadline_ms)
        attempt = 0
        last: TidelogError = NotControllerError("no controller is elected")
        unsure, done = False, set[int]()
        while True:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise TimeoutError(f"the controller did not finish the request in time (last: {last})") from last
            controller = client.view.controller_id
            sent = False
            try:
                if controller == NO_LEADER:
                    raise NotControllerError("no controller is elected")
                peer = await client.peer(controller, left_ms)
                left_ms = max(1, deadline_ms - self._clock.monotonic_ms())
                sent = True
                timeout_ms = min(left_ms, self._request_timeout_ms)
                moved = partial(_has_other_controller, controller)
                request = make(max(1, int(timeout_ms * _ANSWER_MARGIN)))
                answer = await client.call_leader(peer, request, timeout_ms, moved)
                assert isinstance(answer, cls)
            except TidelogError as error:
                if not is_retriable(error):
                    raise
                # `call_leader` raises NotLeaderOrFollowerError itself if the controller moved, without any answer.
                if sent and (not isinstance(error, BrokerError) or isinstance(error, NotLeaderOrFollowerError)):
                    unsure = True
                last = error
            else:
                left = []
                for slot, refused in enumerate(refusals(answer)):
                    if refused is None:
                        done.add(slot)
                    elif not (isinstance(refused, done_before) and (unsure or slot in done)):
                        left.append(refused)
                if not left:
                    return answer
                raise_first(refusal for refusal in left if not isinstance(refusal, _ASK_AGAIN))
                last = left[0]
            await client.try_refresh(deadline_ms)
            if client.view.controller_id in (NO_LEADER, controller):
                await client.backoff(attempt, deadline_ms)
                attempt += 1

    async def await_leaders(self, topic: str, deadline_ms: int, *, partitions: int = 1) -> None:
        """Wait until this client's metadata has so many partitions of the topic or more, and a leader for each.

        Raises TimeoutError at the deadline, and the topic's error if the topic is deleted meanwhile.
        """
        client = self._client
        attempt = 0
        was_seen = False
        while True:
            client.track(topic)
            await client.try_refresh(deadline_ms)
            # Before this client has seen the topic, a refusal only means that a broker does not know it yet.
            if was_seen and (gone := client.refusal(topic)):
                raise gone
            count = client.view.partition_count(topic)
            was_seen = was_seen or count > 0
            missing = [number for number in range(count) if client.view.leader_of(topic, number) is None]
            if count >= partitions and not missing:
                return
            if self._clock.monotonic_ms() >= deadline_ms:
                which = "is not known to its brokers yet"
                if missing:
                    named = f"{plural(len(missing), 'partition')} {ranges_of(missing, MOST_NAMED)}"
                    which = f"has no leader yet for {named}: tidelog explain {topic}/{missing[0]} shows why"
                raise TimeoutError(f"topic {topic!r} was {'created' if partitions == 1 else 'extended'}, but {which}")
            await client.backoff(attempt, deadline_ms)
            attempt += 1


def about_topic(name: str, message: str) -> str:
    """Return the controller's message, with the topic's name in front unless the message contains the name."""
    return message if repr(name) in message else f"topic {name!r}: {message}"


def _has_other_controller(controller_id: int, view: ClusterView) -> bool:
    return view.controller_id not in (NO_LEADER, controller_id)
