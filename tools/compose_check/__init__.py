"""Checks what docker-compose.yml promises on real containers: `scripts/compose-check`. Start with `scenario.py`."""
