"""Recording a process tree over time (`gdbmem monitor`), and its page faults (`gdbmem grow`)."""
