"""Reading the program's memory at a stop, and keeping account of its changes."""
