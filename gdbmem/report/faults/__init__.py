"""Page faults compared with the resident set: the lines that made a process grow."""
