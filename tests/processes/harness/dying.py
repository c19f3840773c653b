"""A broker that ends itself by SIGKILL at a system call of the test's choice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidelog.local.broker import broker_environment

#: Read by every Python that starts with its folder on PYTHONPATH. DIE_AT is (call, end of the file's name, when).
_HOOK = """
import os, signal

def die_at(call, name_end, when):
    real = getattr(os, call)

    def dying(fd, *rest):
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(name_end):
            return real(fd, *rest)
        if when == "after":
            real(fd, *rest)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, call, dying)

if "DIE_AT" in os.environ:
    die_at(*os.environ["DIE_AT"].split())
"""


def dying_at(directory: Path, call: str, name_end: str, when: str) -> Mapping[str, str]:
    """Return the environment in which a broker dies at the first `call` on a file whose name has this end.

    `when` is "before" or "after" the kernel did what was asked. `directory` takes the hook.
    """
    (directory / "sitecustomize.py").write_text(_HOOK)
    path = os.pathsep.join(filter(None, (str(directory), broker_environment().get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "DIE_AT": f"{call} {name_end} {when}"}
