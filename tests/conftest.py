"""Settings that hold for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, Phase, settings

# Examples have no deadline, because no test asserts a time and two cores are shared.
settings.register_profile("shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared cores")

# For `scripts/mutants`, which needs to know only whether a test fails.
settings.register_profile("no shrinking", phases=set(Phase) - {Phase.shrink, Phase.explain})
if os.environ.get("TIDELOG_TESTS") == "no shrinking":
    settings.load_profile("no shrinking")

# Tests run at the same time, and a broker that was killed must find its port free when it starts again.
os.environ["TIDELOG_PORT"] = "0"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and exempt them from it.

    They are half a million objects. Each visit of the garbage collector stops all threads of a worker, for seconds if
    the machine is busy, and a client's thread that stops for five seconds fails its test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
