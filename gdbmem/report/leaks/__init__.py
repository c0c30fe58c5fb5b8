"""Leak searches, and the holders of a block."""
