"""What the kernel says of a process: mappings, resident pages, memory, threads."""
