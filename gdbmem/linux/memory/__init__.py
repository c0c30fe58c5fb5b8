"""A process's memory: mappings, resident pages, and reading it."""
