"""The programs behind `scripts/`: one package for each command, under the command's name.

All packages above may be imported here, and no other package imports this one. `supervised_process.py` and
`terminal_status` are shared.
"""
