"""The files of a run, as the checker reads them. Start with `run_directory.py`, which lists them."""
