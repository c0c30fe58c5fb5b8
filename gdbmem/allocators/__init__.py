"""Allocators' own structures, read through a `Memory`; no gdb."""
