"""Walking the chunks of a heap, and the sums computed on the way."""
