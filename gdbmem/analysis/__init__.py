"""Readings to findings: diff, fold, prune."""
