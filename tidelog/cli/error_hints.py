"""Says what a user can do about an error of the cluster."""

from __future__ import annotations

from tidelog.errors import NoBrokersError, OffsetOutOfRangeError, TidelogError, TimeoutError


def next_step(error: TidelogError) -> str:
    """Return a hint to append to the error's message, beginning with "; "; "" if there is no hint for this error."""
    if isinstance(error, NoBrokersError):
        return "; tidelog status shows whether the local cluster runs, tidelog up starts it"
    if isinstance(error, TimeoutError):
        return "; tidelog status shows which processes run, tidelog up starts the missing ones"
    if isinstance(error, OffsetOutOfRangeError) and error.topic_partition is not None:  # the error of a consumer
        return "; tidelog consume --from beginning reads the remaining records"
    return ""
