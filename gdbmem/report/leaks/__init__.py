"""Leak searches, and who keeps a block alive."""
