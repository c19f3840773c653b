"""`tidelog chaos`."""
