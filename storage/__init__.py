"""One replica's log on one disk, in Kafka's file formats.

Start with `log/log.py`, the log of a partition. `log_manager.py` holds all logs of a broker.
"""
