"""Runs the proofs that take too long for CI, one command after the other: `scripts/prove`. Start with `steps.py`."""
