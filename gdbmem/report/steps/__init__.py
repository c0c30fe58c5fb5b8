"""memwatch's results as tables, JSON and plots."""
