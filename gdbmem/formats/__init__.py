"""Files that tools write, to the model: one module a format."""
