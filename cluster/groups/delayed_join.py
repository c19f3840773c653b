"""The wait for the members of a group to join its next generation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DelayedJoin:
    """Over when everybody has joined, and at its deadline. An initial one is over at its deadline alone (KIP-134).

    deadline_ms        when
    initial            the group was empty: who knows how many are coming?
    remaining_ms       by how much an initial one may be put off yet
    new_member_added   whether somebody has come since it began or was put off
    """

    deadline_ms: int
    initial: bool = False
    remaining_ms: int = 0
    new_member_added: bool = False

    def is_over(self, now_ms: int, initial_delay_ms: int) -> bool:
        """Puts an initial one off while members keep coming: where there was one there are more."""
        if now_ms < self.deadline_ms:
            return False
        if not self.new_member_added or not self.remaining_ms:
            return True
        delay_ms = min(initial_delay_ms, self.remaining_ms)
        self.deadline_ms, self.remaining_ms = now_ms + delay_ms, self.remaining_ms - delay_ms
        self.new_member_added = False
        return False
