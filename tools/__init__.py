"""The programs behind `scripts/`: one package for each command, under the command's name."""
