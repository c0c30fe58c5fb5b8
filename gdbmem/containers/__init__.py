"""C++ containers (maps, vectors, strings, …) read from raw memory by plans of their types, and their changes."""
