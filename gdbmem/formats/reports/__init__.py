"""Readers of the reports that tools print as text, and that people post."""
