"""Metrics, health and readiness of a broker. Start with `health_endpoints.py`."""
