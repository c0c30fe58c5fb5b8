"""gdbmem: which line of code makes this process bigger, and why does it not get smaller again?"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Return what programs use of this package itself: the decorator `profile`, and `%load_ext gdbmem`."""
    if name == "profile":
        from gdbmem.line_recorder import profile  # a program that imports gdbmem alone pays nothing for it

        return profile
    if name == "load_ipython_extension":
        from gdbmem.notebook import load_ipython_extension  # likewise

        return load_ipython_extension
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
