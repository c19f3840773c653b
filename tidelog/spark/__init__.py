"""Spark's data source `tidelog`, for reads and writes of batches and streams. Start with `source.py`.

Executors need this package, pyspark, pyarrow and numpy. No module opens a socket before a task, or a call on the
driver, needs one.
"""
