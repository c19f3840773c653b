"""The events that a broker records for the checker: `recorder.py` is the interface, `history_file.py` writes them."""
