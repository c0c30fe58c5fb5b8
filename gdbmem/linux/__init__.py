"""What the kernel says of processes: /proc, cgroups, process events."""
