"""What allocators say of a process's memory, read through a `Memory`; no gdb."""
