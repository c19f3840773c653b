"""Remove the topics and groups of a run from a cluster that others use, by the prefix of their names.

`python -P -m verify.chaos.cleanup SERVERS PREFIX` removes them. The undo log contains this command for runs that were
killed.
"""

from __future__ import annotations

import asyncio
import sys
import time

from tidelog.aio import Admin
from tidelog.errors import NonEmptyGroupError, TidelogError, raise_first

_ASK_MS = 5_000
#: The time in which the brokers delete the topics, of which one may have thousands of partitions.
_DELETE_MS = 10_000
#: The time in which clients of a killed run end by themselves, so that their groups are empty.
_LAST_MEMBERS_S, _LOOK_AGAIN_S = 12.0, 0.5


def command(servers: str, prefix: str) -> tuple[str, ...]:
    """Return the command that runs `remove` with these arguments in another process. The command is harmless if no
    topic and no group has the prefix.
    """
    return (sys.executable, "-P", "-m", __name__, servers, prefix)


async def remove(servers: str, prefix: str) -> None:
    """Delete the topics, and then the consumer groups, whose names begin with `prefix`.

    Wait up to 12 s for the groups to become empty, then raise NonEmptyGroupError. Raise TidelogError if a deletion
    fails otherwise, and ValueError for an empty prefix.
    """
    if not prefix:
        raise ValueError("the prefix is empty, so it matches every topic and group")
    deadline = time.monotonic() + _LAST_MEMBERS_S
    async with Admin(servers, client_id="chaos") as admin:
        topics = [name for name in await admin.list_topics(_ASK_MS) if name.startswith(prefix)]
        await admin.delete_topics(topics, _DELETE_MS)
        while True:
            try:
                await _remove_groups(admin, prefix)
                return
            except NonEmptyGroupError:
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(_LOOK_AGAIN_S)


async def _remove_groups(admin: Admin, prefix: str) -> None:
    found = (await admin.list_consumer_groups(timeout_ms=_ASK_MS)).all()
    groups = [group.group_id for group in found if group.group_id.startswith(prefix)]
    raise_first((await admin.delete_consumer_groups(groups, _ASK_MS)).values())


def main() -> int:
    """Run `remove` with the arguments of the command line. Return 0, or print a TidelogError and return 1."""
    try:
        asyncio.run(remove(*sys.argv[1:]))
    except TidelogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
