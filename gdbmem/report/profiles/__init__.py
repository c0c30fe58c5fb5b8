"""Heap profiles and their differences as tables, trees, JSON and other tools' formats."""
