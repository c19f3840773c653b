"""What the programs here share that run commands for minutes: what was said last, and the line that tells of it."""
