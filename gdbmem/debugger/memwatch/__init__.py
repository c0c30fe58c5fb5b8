"""The memwatch commands: what each step, line and function did to memory."""
