"""Page faults by call path: which of them made memory resident (`gdbmem grow`, the engine `faults`)."""
