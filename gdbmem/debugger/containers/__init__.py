"""memcontainers: C++ containers, reached from gdb's types and from the heap."""
