"""Pools of best-fit allocators with coalescing."""
