"""Holding a process still by ptrace, copying it, and repairing what a killed debugger left."""
