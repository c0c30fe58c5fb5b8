"""What the kernel says of a process: /proc, read with descriptors that are kept open."""
