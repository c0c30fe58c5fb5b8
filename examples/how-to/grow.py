"""Keep 20,000 objects, and print how many there are."""


class Node:
    def __init__(self, number: int) -> None:
        self.number = number


kept = [Node(number) for number in range(20_000)]
print(len(kept))
