"""Suggest the known names that are most similar to an unknown one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

#: At most this many characters of the unknown name are compared, because a client may send a name of any length.
_MOST_COMPARED = 64
#: If no name is close, this many are listed.
_LISTED = 3


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" if one of the known names is close, else "the nearest are X, Y and Z".

    The second phrase lists up to three names. Upper and lower case count as equal, as do dots, dashes and underscores.
    The phrase is empty if no name is known.
    """
    spelled = {_folded(each): each for each in known}
    wanted = _folded(name[:_MOST_COMPARED])
    if close := get_close_matches(wanted, spelled, n=1):
        return f"did you mean {spelled[close[0]]}?"
    nearest = [spelled[each] for each in get_close_matches(wanted, spelled, n=_LISTED, cutoff=0.0)]
    if not nearest:
        return ""
    *others, last = nearest
    return f"the nearest are {', '.join(others)} and {last}" if others else f"the nearest is {last}"


def _folded(name: str) -> str:
    return re.sub(r"[.\-]", "_", name).lower()
