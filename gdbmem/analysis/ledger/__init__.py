"""Dividing resident memory into entries, and simulating remedies."""
