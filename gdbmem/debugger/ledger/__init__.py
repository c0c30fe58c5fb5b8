"""memexplain, memtrim and what they call in the stopped process."""
