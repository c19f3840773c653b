"""Plants known bugs, which are kept as patches, and shows that tests, simulator and chaos find them.

`scripts/mutants` runs it. Start with `mutant.py`, the format of a patch, then `runner.py`.
"""
