"""What to do about an error of the cluster."""

from __future__ import annotations

from tidelog.errors import NoBrokersError, OffsetOutOfRangeError, TidelogError, TimeoutError


def next_step(error: TidelogError) -> str:
    """What to look at where the cluster, not the command, was at fault; to be put behind the error."""
    if isinstance(error, NoBrokersError):
        return "; tidelog status shows whether the local cluster runs, tidelog up starts it"
    if isinstance(error, TimeoutError):
        return "; tidelog status shows what runs, tidelog up starts what does not"
    if isinstance(error, OffsetOutOfRangeError) and error.topic_partition is not None:  # of a reader
        return "; tidelog consume --from beginning takes what there is"
    return ""
