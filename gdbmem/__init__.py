"""gdbmem: which line of code makes this process bigger, and why does it not get smaller again?"""

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Return the names that programs use directly: the decorator `profile`, and the hook of `%load_ext gdbmem`."""
    if name == "profile":
        from gdbmem.line_recorder import profile  # not imported by a plain `import gdbmem`

        return profile
    if name == "load_ipython_extension":
        from gdbmem.notebook import load_ipython_extension  # likewise

        return load_ipython_extension
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
