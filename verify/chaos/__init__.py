"""Inject faults into a cluster under load, and check the recorded histories against the invariants I1–I23."""
