"""The settings of a broker's process. Start with `broker_settings.py`; `listeners.py` parses the addresses in them."""
