"""Collect what a chaos run recorded, and check it."""
