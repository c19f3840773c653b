"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test asserts a time, and two cores are shared: how long an example took says nothing about it.
settings.register_profile("shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared cores")
