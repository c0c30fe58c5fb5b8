"""A Python program for memray: two threads keep blocks, the main one a dictionary; 3 MB come and go."""

import threading

kept: dict[str, list[bytes]] = {}


def work(name: str, count: int) -> None:
    kept[name] = [bytes(2000) for _ in range(count)]
    bytes(3_000_000)


threads = [threading.Thread(target=work, args=(f"worker {count}", count)) for count in (100, 250)]
for one in threads:
    one.start()
    one.join()
table = dict.fromkeys(range(5000))
