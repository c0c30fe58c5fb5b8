"""Who starts whom: valgrind, gdb and the program as child processes."""
