"""Keeps rows: three thousand at the first line of input, twelve thousand at the second."""

import sys


class Row:
    """A number and a name."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.name = f"row {n}"


rows = [Row(n) for n in range(3000)]
print("ready", flush=True)
sys.stdin.readline()
rows += [Row(n) for n in range(9000)]
print("ready", flush=True)
sys.stdin.readline()
