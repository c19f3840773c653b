"""A log directory: its logs, its checkpoints, and the files that record how the previous process ended.

Start with `log_directory.py`.
"""
