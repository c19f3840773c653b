"""The wait for the members of a group to join its next generation (Kafka: DelayedJoin)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DelayedJoin:
    """A wait that ends when all members have joined, or at its deadline.

    An initial wait, of a group that was empty, ends only at its deadline (KIP-134), because the number of members to
    come is unknown.

    deadline_ms        the time at which the wait ends
    initial            the group was empty
    remaining_ms       by how much an initial wait may still be extended
    new_member_added   whether a member has joined since the wait began or was extended
    """

    deadline_ms: int
    initial: bool = False
    remaining_ms: int = 0
    new_member_added: bool = False

    def is_over(self, now_ms: int, initial_delay_ms: int) -> bool:
        """Return whether the deadline has passed.

        If a member has joined since the wait began or was extended, an initial wait is extended instead, as long as
        `remaining_ms` allows, and the result is False.
        """
        if now_ms < self.deadline_ms:
            return False
        if not self.new_member_added or not self.remaining_ms:
            return True
        delay_ms = min(initial_delay_ms, self.remaining_ms)
        self.deadline_ms, self.remaining_ms = now_ms + delay_ms, self.remaining_ms - delay_ms
        self.new_member_added = False
        return False
