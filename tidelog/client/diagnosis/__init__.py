"""Explain the state of a partition (`tidelog explain`) and of a cluster (`tidelog doctor`)."""
