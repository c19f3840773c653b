"""Everything that reads what others wrote, under whatever bytes: what was found before, and some thousands more.

`scripts/fuzz` tries as many as there is time for; what it finds is kept beside this file and tried here for ever.
"""

from __future__ import annotations

import time
from itertools import islice

import pytest

from tools.fuzz.catalogue import TARGETS
from tools.fuzz.corpus import starting_inputs
from tools.fuzz.mutations import mutations
from tools.fuzz.targets.target import Target

#: Of each target, whichever bound is met first: the suite is to stay quick on a machine that others use, too.
CASES, SECONDS = 4_000, 0.6
#: What one input may take where eight others want the processor.
SLOWEST_S = 5.0

ALL = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


@ALL
def test_what_was_found_before_and_what_is_as_it_should_be_is_read_or_refused(target: Target) -> None:
    for data in starting_inputs(target):
        target.run(data)


@ALL
def test_whatever_comes_is_read_or_refused_in_time(target: Target) -> None:
    begun = time.monotonic()
    for data in islice(mutations(1, starting_inputs(target), target.dictionary), CASES):
        before = time.monotonic()
        target.run(data)
        assert time.monotonic() - before < SLOWEST_S, data
        if time.monotonic() - begun > SECONDS:
            break
