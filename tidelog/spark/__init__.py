"""Spark's side of Tidelog: the data source `tidelog`, for batches and streams, reading and writing.

Executors need this package, pyspark, pyarrow and numpy; nothing here opens a socket before a task or a
driver-side call needs one.
"""
