"""A resident set divided into entries that add up to it (`gdbmem explain`): the division, remedies, text, JSON."""
