"""The memwatch commands, one module each."""
