"""The kinds of blocks that a leak search distinguishes."""

from __future__ import annotations

DEFINITELY, INDIRECTLY, POSSIBLY = "definitely-lost", "indirectly-lost", "possibly-lost"
REACHABLE, SUPPRESSED = "reachable", "suppressed"
LOST = (DEFINITELY, INDIRECTLY, POSSIBLY)
WITH_INDIRECT = "lost"  # the metric: definitely lost, with what only these blocks point to
KINDS = (*LOST, REACHABLE, SUPPRESSED)
