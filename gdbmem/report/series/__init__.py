"""Recordings and comparisons as text, JSON, plots, a live view and Prometheus metrics."""
