"""What CI has no time for, one command after the other, and what came of each."""
