"""`scripts/compose-check`: the compose file, run for real."""
