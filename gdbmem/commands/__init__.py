"""One description of each command: the parsers, gdb's help, completion, the man pages and the reference read it."""
