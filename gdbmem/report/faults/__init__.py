"""Page faults beside the resident set: who made a process grow."""
