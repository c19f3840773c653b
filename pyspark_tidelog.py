"""Registers the format `tidelog`: Spark imports packages named `pyspark_*` and finds their `DefaultSource`."""

from __future__ import annotations

from tidelog.extras import missing, require

_USE = "the format tidelog"

if missing("spark", _USE):
    from pyspark.sql.datasource import DataSource

    # If an import fails, Spark skips all data sources in Python, and would only say that the format does not exist.
    class DefaultSource(DataSource):
        """A source that raises MissingExtraError when it is used, because packages of the extra are not installed."""

        @classmethod
        def name(cls) -> str:
            return "tidelog"

        def __init__(self, options: dict[str, str]) -> None:
            require("spark", _USE)
            super().__init__(options)

else:
    from tidelog.spark.source import TidelogSource as DefaultSource

__all__ = ["DefaultSource"]
