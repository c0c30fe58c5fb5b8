"""Page faults of processes, sampled by the kernel: perf_event_open in plain Python."""
