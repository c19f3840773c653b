"""Collects what a chaos run recorded, and judges it."""
