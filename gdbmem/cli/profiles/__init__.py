"""`show`, `diff` and `report` of profiles and runs: what several of these commands share."""
