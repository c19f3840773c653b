"""Read topics as Arrow columns. Start with `scan.py`; `Consumer.poll_arrow` and Spark's source use the same arrays.

The extra `arrow` installs pyarrow and numpy. Only this folder, `tidelog.records.columns` and `tidelog.spark` import
these two packages.
"""
