"""The recording and the reporting of `gdbmem monitor` and `compare`."""
