"""Analysis of readings: diffs, folding, pruning, verdicts."""
