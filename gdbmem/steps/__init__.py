"""What steps of a program did to its memory (`memwatch`): tables, charts, JSON."""
