"""Running the program from stop to stop: steps, breakpoints, locked threads, system calls."""
