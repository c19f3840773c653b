"""Runs librdkafka's own C test suite against a cluster: `python -m tools.librdkafka_suite`. Start with `suite.py`."""
