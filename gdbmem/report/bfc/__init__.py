"""Pools of best-fit allocators as text and JSON."""
