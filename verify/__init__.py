"""Proof that a cluster keeps its promises: checker, chaos and simulation. The wheel contains them for users."""
