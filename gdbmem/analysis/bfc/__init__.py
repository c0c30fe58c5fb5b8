"""Pools of best-fit allocators: what they would do with a request, and why."""
