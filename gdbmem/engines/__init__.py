"""Who takes a heap snapshot."""
