"""The counts per minute: counted in plain Python, and read from the files that Spark wrote."""
