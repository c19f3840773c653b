"""`tidelog topic`, `tidelog offsets` and `tidelog config`."""
