"""What runs inside gdb: the only folder that imports gdb."""
