"""Brokers register while others answer: an elected leader's log reaches as far as that of any registered replica.

`tests.cluster.arrivals_stage` draws the scenarios and compares each election with a twin that knows every log.
"""

from __future__ import annotations

import random

import pytest

from tests.cluster.arrivals_stage import Stage

SEEDS = range(1000)
STEPS_OF_A_STORY = 90


def tell_story(seed: int, *, unclean: bool) -> Stage:
    stage = Stage(random.Random(seed), unclean=unclean)
    try:
        stage.diverge_logs()
        for _ in range(STEPS_OF_A_STORY):
            stage.step()
        stage.recover()
    except AssertionError as error:
        scenario = "; ".join(stage.log)
        raise AssertionError(f"seed {seed}: {error}\n{scenario}") from error
    return stage


@pytest.mark.parametrize("unclean", [True, False], ids=["unclean elections", "clean elections"])
def test_elected_leader_reaches_as_far_as_any_replica_that_is_registered(unclean: bool) -> None:
    elections = sum(tell_story(seed, unclean=unclean).elections for seed in SEEDS)
    assert elections > len(SEEDS), "the scenarios have too few elections that the twin judges"
