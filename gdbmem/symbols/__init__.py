"""Names for addresses, types and files, through a batch gdb and ELF files."""
