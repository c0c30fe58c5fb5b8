"""Stopping a process by ptrace, copying it, and cleaning up after a killed debugger."""
