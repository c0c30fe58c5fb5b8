"""Recipes: the YAML text, its checks, and the data it becomes."""
