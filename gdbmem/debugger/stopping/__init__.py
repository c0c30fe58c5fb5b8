"""Stopping the running program, and gdb's handling of signals."""
