"""What a run leaves in a cluster that others use: topics and groups, by what their names begin with.

`python -P -m verify.chaos.cleanup SERVERS PREFIX` removes them, as the undo log asks for after a run that was killed.
"""

from __future__ import annotations

import asyncio
import sys
import time

from tidelog.aio import Admin
from tidelog.errors import NonEmptyGroupError, TidelogError, raise_first

_ASK_MS = 5_000
#: Clients of a run that was killed go by themselves, and their groups are empty after that.
_LAST_MEMBERS_S, _LOOK_AGAIN_S = 12.0, 0.5


def command(servers: str, prefix: str) -> tuple[str, ...]:
    """What removes them from another process, and does nothing where there are none."""
    return (sys.executable, "-P", "-m", __name__, servers, prefix)


async def remove(servers: str, prefix: str) -> None:
    """TidelogError says why something stays. ValueError: everything begins with nothing."""
    if not prefix:
        raise ValueError("an empty prefix")
    deadline = time.monotonic() + _LAST_MEMBERS_S
    async with Admin(servers, client_id="chaos") as admin:
        topics = [name for name in await admin.list_topics(_ASK_MS) if name.startswith(prefix)]
        await admin.delete_topics(topics, _ASK_MS)
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
    """The exit status."""
    try:
        asyncio.run(remove(*sys.argv[1:]))
    except TidelogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
