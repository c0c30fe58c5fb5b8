"""Dividing resident memory into entries, and simulating what would give it back."""
