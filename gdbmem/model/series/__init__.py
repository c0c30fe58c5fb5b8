"""Memory over time: readings, verdicts, comparisons."""
