"""The outcome of a recipe as text, JSON and JUnit XML."""
