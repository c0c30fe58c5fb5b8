"""Running Python code in a Python process."""
