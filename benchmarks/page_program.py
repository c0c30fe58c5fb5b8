"""Many call paths: `page_program.py COUNT` allocates along COUNT stacks of 31 calls, and keeps it all."""

import sys
from typing import Any

FUNCTIONS = 40
HELD: "list[bytearray]" = []
BODY = """
def f{0}(path, depth):
    HELD.append(bytearray(600 + {0}))
    if depth:
        chosen = path % {1}
        CALLED[chosen](path // {1} * 7 + chosen * 13 + 1, depth - 1)
"""

scope: "dict[str, Any]" = {"HELD": HELD}
exec(
    compile("".join(BODY.format(number, FUNCTIONS) for number in range(FUNCTIONS)), "work.py", "exec"), scope
)
scope["CALLED"] = [scope[f"f{number}"] for number in range(FUNCTIONS)]
for number in range(int(sys.argv[1])):
    scope["CALLED"][number % FUNCTIONS](number * 2654435761, 30)
