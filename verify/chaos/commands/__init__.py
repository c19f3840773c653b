"""Implement the command `tidelog chaos`."""
