"""The log lines that the demo feeds: their sources, formats and times."""
