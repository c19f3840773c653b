"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# No test asserts a time, and two cores are shared: how long an example took says nothing about it.
settings.register_profile("shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared cores")

# For who only asks whether a test fails (`scripts/mutants`), and not of what.
settings.register_profile("no shrinking", phases=set(Phase) - {Phase.shrink, Phase.explain})
if os.environ.get("TIDELOG_TESTS") == "no shrinking":
    settings.load_profile("no shrinking")
