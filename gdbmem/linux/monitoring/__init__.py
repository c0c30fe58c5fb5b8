"""Cheap readings of a process tree: statm, PSS, cgroups, process events, GPUs."""
