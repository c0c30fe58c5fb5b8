"""Questions about single blocks of a heap."""
