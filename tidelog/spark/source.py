"""The data source `tidelog`: it makes readers and writers from options and a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelog.errors import ConfigError
from tidelog.spark.batch_reader import TidelogBatchReader
from tidelog.spark.clients import Clients
from tidelog.spark.columns import check_schema, kafka_schema
from tidelog.spark.options import Use, parse_read, parse_write, wants_headers
from tidelog.spark.stream_reader import TidelogStreamReader
from tidelog.spark.writer import TidelogBatchWriter, TidelogStreamWriter


class TidelogSource(DataSource):
    """The data source of `format("tidelog")`, which makes the readers and the writers.

    Raises ConfigError for wrong options or a wrong schema. Spark creates and pickles such objects freely, so that none
    of them connects.
    """

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def clients(self, bootstrap_servers: str, settings: Mapping[str, Any]) -> Clients:
        """Return the factory of the clients for a reader or a writer. A test overrides this method."""
        return Clients(bootstrap_servers, settings)

    def schema(self) -> StructType:
        return kafka_schema(include_headers=wants_headers(self.options))

    def reader(self, schema: StructType) -> TidelogBatchReader:
        check_schema(schema)
        options = parse_read(self.options, Use.BATCH_READ)
        return TidelogBatchReader(options, self.clients(options.bootstrap_servers, options.client), schema)

    def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802
        check_schema(schema)
        options = parse_read(self.options, Use.STREAM_READ)
        return TidelogStreamReader(options, self.clients(options.bootstrap_servers, options.client), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TidelogBatchWriter:
        if overwrite:
            raise ConfigError("a log cannot be overwritten: write with mode('append')")
        options = parse_write(self.options)
        return TidelogBatchWriter(options, self.clients(options.bootstrap_servers, options.client), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidelogStreamWriter:  # noqa: N802
        # In complete mode each batch appends the whole result, as with Spark's Kafka sink.
        options = parse_write(self.options)
        return TidelogStreamWriter(options, self.clients(options.bootstrap_servers, options.client), schema)
