"""Processes and their threads: lists, states, permissions."""
