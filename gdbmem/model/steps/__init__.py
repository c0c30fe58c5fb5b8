"""Changes of memory between stops, and by line of a function."""
