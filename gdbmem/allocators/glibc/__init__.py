"""glibc's malloc: its arenas, bins, caches and chunks."""
