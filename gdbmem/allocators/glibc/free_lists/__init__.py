"""Malloc's lists of free chunks, and contradictions in them."""
