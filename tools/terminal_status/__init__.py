"""Shows the last output of a running command in one changing line of the terminal."""
