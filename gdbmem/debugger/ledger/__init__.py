"""memexplain, memtrim and their calls in the stopped process."""
