"""Playing a recipe."""
