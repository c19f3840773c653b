"""The settings of topics, and the brokers' defaults for them. Start with `log_config.py`."""
