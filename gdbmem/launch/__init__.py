"""Starting, connecting and stopping valgrind, gdb and the program."""
