"""Files as another process sees them, opened with its rights."""
