"""Ledgers, heap maps, remedies and malloc's own accounts as text, JSON and pictures."""
