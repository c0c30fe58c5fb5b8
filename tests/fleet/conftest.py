"""Tests with real launchers and workers: `scripts/test --fleet` sets them up and runs them, the other tiers do not."""

import os

collect_ignore_glob = [] if os.environ.get("FLEET") else ["test_*.py"]
