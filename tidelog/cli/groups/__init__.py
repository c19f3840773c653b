"""`tidelog group`."""
