"""Recording the memory of a process tree over time: the loop, the program it starts, triggers."""
