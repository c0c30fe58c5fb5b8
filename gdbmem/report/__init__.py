"""Model to terminal, JSON, HTML."""
