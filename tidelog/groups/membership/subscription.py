"""The topics that a consumer is subscribed to: by name, or all whose names match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tidelog import arguments
from tidelog.errors import ArgumentTypeError, ArgumentValueError, IllegalStateError

#: Messages of IllegalStateError: a consumer either subscribes, or is assigned partitions.
SUBSCRIBED = "this consumer is subscribed: unsubscribe before you assign partitions"
ASSIGNED = "this consumer was assigned partitions by hand: unsubscribe before you subscribe"


def constructor_topics(topics: Sequence[Any]) -> list[str]:
    """Return the topics that a consumer's constructor was given, and check them.

    Raises ArgumentValueError for an address, which older versions took here; ArgumentTypeError for a value that is not
    a str; InvalidTopicError.
    """
    for each in topics:
        if not isinstance(each, str) or ":" in each:
            error = ArgumentValueError if isinstance(each, str) else ArgumentTypeError
            raise error(
                f"Consumer takes topics, as in Consumer('orders', 'bills'), not {arguments.shown(each)}: "
                "pass addresses as bootstrap_servers="
            )
    return arguments.topics("topics", topics)


class Subscription:
    """A subscription, by topic names or by a pattern.

    pattern   None for topic names
    topics    the subscribed topics; those of a pattern change with the cluster's topics, and are None before the first
              match
    """

    def __init__(self, topics: Iterable[str] = (), pattern: str | re.Pattern[str] | None = None) -> None:
        """Check the arguments: either topics or a pattern must be given, and not both.

        Raises ValueError, TypeError or InvalidTopicError.
        """
        if isinstance(topics, str):
            raise ArgumentValueError(f"topics must be a list of names, as [{topics!r}], and not one name")
        names = frozenset(arguments.topics("topics", topics))
        if bool(names) == (pattern is not None):
            raise ArgumentValueError("subscribe to either topics or a pattern; unsubscribe ends a subscription")
        self.pattern = None if pattern is None else _compiled(pattern)
        self.topics: frozenset[str] | None = names or None

    def require_same_kind_as(self, before: Subscription | None) -> None:
        """Raise IllegalStateError if one of the two subscriptions is by topics and the other by pattern.

        Without an earlier subscription (None) nothing is raised.
        """
        if before is not None and (before.pattern is None) != (self.pattern is None):
            raise IllegalStateError(
                "topics and a pattern exclude each other: unsubscribe before you change from one to the other"
            )

    def update_matches(self, names: Iterable[str]) -> bool:
        """Set `topics` to the names that the pattern matches from their beginning; return whether they have changed."""
        assert self.pattern is not None
        before, self.topics = self.topics, frozenset(name for name in names if self.pattern.match(name))
        return before != self.topics


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if not isinstance(pattern.pattern if isinstance(pattern, re.Pattern) else pattern, str):
        raise ArgumentTypeError(f"pattern must be a regular expression of a str, not {pattern!r}")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ArgumentValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None
