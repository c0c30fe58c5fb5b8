"""A server of the Model Context Protocol: gdbmem's reports as tools of an agent (`gdbmem mcp`)."""
