"""CPython: its allocator pymalloc, its objects, and the tables of tracemalloc, read from outside."""
