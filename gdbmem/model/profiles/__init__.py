"""Heap profiles: call trees, snapshots, their differences."""
