"""Recordings of memory over time on disk: written, thinned, completed, imported, summed up."""
