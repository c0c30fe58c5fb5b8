"""Python processes as text and as JSON."""
