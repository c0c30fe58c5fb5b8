"""What a launch leaves on disk, and recipes."""
