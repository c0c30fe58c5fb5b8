"""The graph of a heap: which variable or block holds which blocks, what each retains, and what nothing reaches."""
