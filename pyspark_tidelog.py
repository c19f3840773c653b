"""Registers the format `tidelog`: Spark imports packages named `pyspark_*` and finds their `DefaultSource`."""

from __future__ import annotations

from tidelog.spark.source import TidelogSource as DefaultSource

__all__ = ["DefaultSource"]
