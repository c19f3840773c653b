"""Generate any message that its class's annotations allow."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from tidelog.model import Buffer
from tidelog.protocol.admin_messages import ADMIN_REQUESTS
from tidelog.protocol.control_messages import CONTROL_REQUESTS
from tidelog.protocol.group_messages import GROUP_REQUESTS
from tidelog.protocol.list_offsets_v0_messages import SEGMENT_REQUESTS
from tidelog.protocol.messages import CLIENT_REQUESTS, Message
from tidelog.protocol.operator_messages import OPERATOR_REQUESTS
from tidelog.protocol.partition_messages import PARTITION_REQUESTS

REQUESTS = (
    *CLIENT_REQUESTS,
    *ADMIN_REQUESTS,
    *GROUP_REQUESTS,
    *OPERATOR_REQUESTS,
    *PARTITION_REQUESTS,
    *SEGMENT_REQUESTS,
    *CONTROL_REQUESTS,
)

#: Values at the ends of the fields' ranges.
Scalars = Mapping[Any, st.SearchStrategy[Any]]
ANY: Scalars = {
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=40),
    Buffer: st.binary(max_size=40),
}


def values_of(annotation: Any, scalars: Scalars = ANY) -> st.SearchStrategy[Any]:
    """Return any value that a field of this type may have, derived from the annotation alone."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        hints = get_type_hints(annotation)
        return st.builds(annotation, **{f.name: values_of(hints[f.name], scalars) for f in fields(annotation)})  # type: ignore[arg-type]
    if annotation in scalars:
        return scalars[annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        members = [a for a in get_args(annotation) if a is not types.NoneType]
        return st.none() | values_of(Buffer if set(members) == set(get_args(Buffer)) else members[0], scalars)
    if get_origin(annotation) is tuple:
        return st.lists(values_of(get_args(annotation)[0], scalars), max_size=3).map(tuple)
    key, value = get_args(annotation)
    return st.dictionaries(values_of(key, scalars), values_of(value, scalars), max_size=3)
