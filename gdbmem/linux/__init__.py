"""Process information from /proc, ptrace, cgroups and netlink."""
