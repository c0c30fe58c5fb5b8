"""Call paths of copied stacks, by the unwind tables of the code that they return into."""
