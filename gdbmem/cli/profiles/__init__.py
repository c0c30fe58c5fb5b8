"""Code shared by `show`, `diff` and `report` of profiles and runs."""
