"""Checks brokers' files with Kafka's dump tool: `scripts/check`.

Uses only the standard library, so that a bare Python 3.11 runs it. Start with `judge.py`.
"""
