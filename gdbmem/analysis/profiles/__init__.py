"""Call trees: differences, grouping, ranking, and whose code a frame is."""
