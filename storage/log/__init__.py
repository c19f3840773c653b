"""The log of one partition: append, read, look-up by time, retention and recovery.

Start with `log.py`. `recovery.py` lists the steps of a start after a crash.
"""
