"""Every reader of files and frames with arbitrary bytes: inputs that were stored, and some thousands more.

`scripts/fuzz` tries more inputs. The inputs that it stores in `tests/fuzz/corpus` are tried here in every run.
"""

from __future__ import annotations

import time
from itertools import islice

import pytest

from tools.fuzz.catalogue import TARGETS
from tools.fuzz.corpus import starting_inputs
from tools.fuzz.mutations import mutations
from tools.fuzz.targets.target import Target

#: The bounds for each target, whichever comes first. The seconds are CPU time, so that a busy machine tries as many
#: inputs as an idle one. These bounds find 11 of 14 planted bugs, as 0.6 s do.
CASES, SECONDS = 4_000, 0.25
#: The time limit of one input while eight other processes want the processor.
SLOWEST_S = 5.0

ALL = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


@ALL
def test_stored_inputs_and_seeds_are_read_or_refused(target: Target) -> None:
    for data in starting_inputs(target):
        target.run(data)


@ALL
def test_arbitrary_inputs_are_read_or_refused_in_time(target: Target) -> None:
    begun = time.process_time()
    for data in islice(mutations(1, starting_inputs(target), target.dictionary), CASES):
        before = time.monotonic()
        target.run(data)
        assert time.monotonic() - before < SLOWEST_S, data
        if time.process_time() - begun > SECONDS:
            break
