"""Snapshots by a profiler that is loaded into the program: calls into the stopped process."""
