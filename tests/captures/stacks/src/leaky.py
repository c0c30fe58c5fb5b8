"""A Python program for memray: 400 blocks of 1,000 bytes are kept, 5 MB come and go."""

kept: list[bytearray] = []


def keep(count: int) -> None:
    for _ in range(count):
        kept.append(bytearray(1000))


def churn() -> int:
    return len([bytearray(100_000) for _ in range(50)])


def main() -> None:
    keep(300)
    churn()
    keep(100)


main()
