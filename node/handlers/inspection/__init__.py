"""The handlers that describe a broker, its replicas and its log directories."""
