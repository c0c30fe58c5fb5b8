"""Pools of best-fit allocators: the outcome of a request, and its reasons."""
