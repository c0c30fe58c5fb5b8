"""memcontainers: C++ containers, found through gdb's types and in the heap."""
