"""Count the failed requests of one partition, and hold the pause before the next one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.client.metadata import Leader


@dataclass(frozen=True, slots=True)
class Retry:
    """The failures since the last fetch answer or the last change of the position.

    attempts       the number of failures
    wrong_topics   how many of the last answers in a row came from a leader of another topic with the same name
    at_ms          when to ask `leader` again; another leader is asked at once
    leader         the leader that failed; None: the group's coordinator, or no leader was known
    """

    attempts: int = 0
    wrong_topics: int = 0
    at_ms: int = 0
    leader: Leader | None = None

    def after_failure(self, leader: Leader | None, at_ms: int) -> Retry:
        """Return the value after one more failure; `leader` is not asked again before `at_ms`."""
        return replace(self, attempts=self.attempts + 1, at_ms=at_ms, leader=leader)

    def after_topic(self, *, is_wrong: bool) -> Retry:
        """Return the value after an answer of a leader of the right topic, or of another topic with the same name.

        One more wrong answer counts in `wrong_topics`; a right one sets it to 0.
        """
        return replace(self, wrong_topics=self.wrong_topics + 1 if is_wrong else 0)

    def must_wait(self, leader: Leader | None, now_ms: int) -> bool:
        """Return whether this leader (None: the coordinator) is the one that failed, and its pause is not over."""
        return self.at_ms > now_ms and leader == self.leader


NO_RETRY = Retry()
