"""Page faults beside what is resident: who made a process grow."""
