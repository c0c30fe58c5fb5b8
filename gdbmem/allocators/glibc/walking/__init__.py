"""Walking the chunks of a heap, and what is summed on the way."""
