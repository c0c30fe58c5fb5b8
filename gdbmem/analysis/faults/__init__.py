"""Page faults compared with resident memory: the lines that made a process grow."""
