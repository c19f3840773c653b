"""A log directory: its logs, its checkpoints, and the files that say how the broker stopped.

Start with `log_directory.py`.
"""
