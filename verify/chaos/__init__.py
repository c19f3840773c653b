"""Chaos: a cluster under load that is broken on purpose, and the histories by which it is judged."""
