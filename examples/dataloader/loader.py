"""Epochs of a data loader with forked workers: why does memory rise in teeth, and never in RSS?

    python loader.py [EPOCHS] [WORKERS] [--torch] [--bytes]

The data set is a list of strings, as file names and labels are. A worker that only *reads* it writes each
object's reference count, and the kernel copies the page: copy-on-write. Workers end with the epoch, and the
copies with them. With --bytes the strings stand in one buffer, which has one count, and nothing is copied.
With --torch a torch DataLoader forks the workers (if torch is installed), else multiprocessing does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from typing import Any


class Names:
    """The data set: *count* strings, as objects or in one buffer."""

    def __init__(self, count: int, *, in_one_buffer: bool) -> None:
        names = [f"/data/images/{number:07d}/picture.jpg" for number in range(count)]
        self._width = len(names[0])
        self._names: Any = "".join(names).encode() if in_one_buffer else names
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        name = (
            self._names[index]
            if isinstance(self._names, list)
            else self._names[index * self._width : (index + 1) * self._width]
        )
        return len(name)


def read_share(data: Names, worker: int, workers: int, seconds: float) -> None:
    order = list(range(worker, len(data), workers))
    random.Random(worker).shuffle(order)
    for number, index in enumerate(order):
        data[index]
        if number % 5000 == 0:
            time.sleep(seconds / (len(order) / 5000))


def epoch(data: Names, workers: int, seconds: float) -> None:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=read_share, args=(data, n, workers, seconds)) for n in range(workers)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def torch_epoch(data: Names, workers: int) -> None:
    from torch.utils.data import DataLoader  # type: ignore[import-not-found,unused-ignore]

    for _ in DataLoader(data, batch_size=256, num_workers=workers, shuffle=True):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="epochs of a data loader with forked workers")
    parser.add_argument("epochs", nargs="?", type=int, default=5)
    parser.add_argument("workers", nargs="?", type=int, default=2)
    parser.add_argument("--names", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long an epoch takes at least")
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--torch", action="store_true")
    args = parser.parse_args()
    data = Names(args.names, in_one_buffer=args.bytes)
    for number in range(args.epochs):
        print(f"epoch {number}", flush=True)
        if args.torch:
            torch_epoch(data, args.workers)
        else:
            epoch(data, args.workers, args.seconds)
        time.sleep(1.0)  # the workers have ended: the floor of the sawtooth


if __name__ == "__main__":
    main()
