"""The log lines that the demo sends: their sources, formats and times."""
