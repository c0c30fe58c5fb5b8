"""Reading the heap of a live process, a copy of it, or a core: the order of reads, and the worker that makes them."""
