"""Engines: the tools that take heap snapshots."""
