"""Finding malloc's data in a process: arenas, regions, layouts."""
