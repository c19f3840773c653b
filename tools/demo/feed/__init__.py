"""The producer of the demo, which sends lines at a given pace and writes a journal of the acknowledgements."""
