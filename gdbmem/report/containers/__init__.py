"""C++ containers as text and JSON."""
