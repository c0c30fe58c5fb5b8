"""A program in Python that becomes bigger in one function, when it gets a line of input."""

from __future__ import annotations

import sys

kept: list[object] = []


def come_and_go(n: int) -> int:
    return len([str(n) * 90 for n in range(100)])


def fill() -> None:  # planted: python
    for n in range(100_000):
        kept.append(str(n) * 180)


def fill_array() -> None:  # planted: numpy
    import numpy

    array = numpy.empty(12 << 20)
    array[:] = 1.5
    kept.append(array)


def main() -> None:
    act = fill if sys.argv[1] == "python" else fill_array
    if act is fill_array:
        import numpy  # noqa: F401
    print("ready", flush=True)
    sys.stdin.readline()
    come_and_go(1)
    act()
    come_and_go(2)
    print("grew", len(kept), flush=True)
    sys.stdin.readline()


main()
