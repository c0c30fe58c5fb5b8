"""Call trees, snapshots, diffs: frozen data, no I/O."""
