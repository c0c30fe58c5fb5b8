"""Pools of BFC allocators and of PyTorch's (`gdbmem bfc`): why a request fails, remedies, changes, text, JSON."""
