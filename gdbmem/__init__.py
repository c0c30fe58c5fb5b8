"""gdbmem: which line of code makes this process bigger, and why does it not get smaller again?"""

__version__ = "0.1.0"
