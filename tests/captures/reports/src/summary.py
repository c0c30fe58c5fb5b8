"""What PyTorch's own memory_summary() prints of counters like those of a GPU: summary.py [UNIT [short]]."""

import sys

from torch.cuda import memory  # type: ignore[import-not-found]

UNIT = int(sys.argv[1]) if sys.argv[1:] else 1 << 20
COUNTERS: dict[str, int] = {"num_alloc_retries": 2, "num_ooms": 1}
SIZES = {"allocated": 6000, "active": 6100, "requested": 5900, "reserved": 9000, "inactive_split": 400}
COUNTS = {"allocation": 700, "active": 710, "segment": 80, "inactive_split": 40}


def count(name: str, current: int) -> None:
    for kind, value in (
        ("current", current),
        ("peak", current + 5),
        ("allocated", 3 * current),
        ("freed", 2 * current),
    ):
        COUNTERS[f"{name}.{kind}"] = value


for pool, share in (("all", 4), ("large_pool", 3), ("small_pool", 1)):
    for name, mib in SIZES.items():
        count(f"{name}_bytes.{pool}", mib * share // 4 * UNIT)
    for name, number in COUNTS.items():
        count(f"{name}.{pool}", number * share // 4)
for name in ("oversize_allocations", "oversize_segments"):
    count(name, 0)
memory.memory_stats = lambda device=None: COUNTERS
print(memory.memory_summary(device=0, abbreviated="short" in sys.argv))
