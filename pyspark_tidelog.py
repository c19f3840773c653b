"""Found by Spark through its name, `pyspark_*`: makes `format("tidelog")` known without any registration."""

from __future__ import annotations

from tidelog.spark.source import TidelogSource as DefaultSource

__all__ = ["DefaultSource"]
