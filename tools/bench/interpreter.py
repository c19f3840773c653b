"""Finds out how an interpreter was built: one without profile-guided optimisation (PGO) is 10 to 20 % slower.

`python interpreter.py` exits with 0 if the Python that runs it was built with PGO, else with 1. This file imports only
the standard library, because `scripts/bench` runs it in interpreters that have no other packages.
"""

from __future__ import annotations

import platform
import sys
import sysconfig

_REQUESTED = "--enable-optimizations"
#: Debian and its derivatives build with PGO without that option. Only their builds have this option.
_DEBIAN_OPTION = "--with-wheel-pkg-dir=/usr/share/python-wheels"


def is_optimised(configure_arguments: str) -> bool:
    """Return whether an interpreter that was configured with these arguments was built with PGO."""
    return _REQUESTED in configure_arguments or _DEBIAN_OPTION in configure_arguments


def this_is_optimised() -> bool:
    """Return whether the interpreter that runs this was built with PGO."""
    return is_optimised(sysconfig.get_config_var("CONFIG_ARGS") or "")


def in_words() -> str:
    """Return the name, the version and the kind of build of this interpreter in words, for a report."""
    build = "built with optimisation" if this_is_optimised() else "built without optimisation (slower)"
    return f"{platform.python_implementation()} {platform.python_version()}, {build}"


if __name__ == "__main__":
    sys.exit(not this_is_optimised())
