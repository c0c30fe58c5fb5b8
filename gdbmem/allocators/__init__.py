"""What allocators say of themselves, read from their own bookkeeping in the process's memory."""
