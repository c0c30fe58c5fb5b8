"""A Python program for Austin: it keeps 40 MB, then spends a while on them."""

import time

kept: list[bytearray] = []


def keep(count: int) -> None:
    for _ in range(count):
        kept.append(bytearray(b"x" * 1_000_000))
        time.sleep(0.002)


def main() -> None:
    keep(40)
    kept.clear()
    keep(10)


main()
