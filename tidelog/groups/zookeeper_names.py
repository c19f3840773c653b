"""Checks the names of groups that keep offsets in ZooKeeper, because each name is one element of a path."""

from __future__ import annotations

import re

from tidelog.errors import InvalidGroupIdError

MAX_GROUP_ID_BYTES = 1000
#: The characters that ZooKeeper refuses in paths. ZooKeeper sees characters beyond U+FFFF as pairs of surrogates.
_NOT_IN_PATHS = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def group_in_path_or_raise(group_id: str) -> str:
    """Return the group id. Raise InvalidGroupIdError if it cannot be one element of a path in ZooKeeper.

    A group id is refused if it is empty, ".", "..", longer than 1,000 bytes, or has a "/" or another character that
    ZooKeeper refuses.
    """
    if not isinstance(group_id, str) or group_id in ("", ".", ".."):
        raise InvalidGroupIdError(f"{group_id!r} cannot name a group in ZooKeeper")
    if found := _NOT_IN_PATHS.search(group_id):
        raise InvalidGroupIdError(f"{group_id[:100]!r}: a group in ZooKeeper must not have {found[0]!r} in its name")
    if len(group_id.encode()) > MAX_GROUP_ID_BYTES:
        raise InvalidGroupIdError(f"a group in ZooKeeper has a name of at most {MAX_GROUP_ID_BYTES} bytes")
    return group_id
