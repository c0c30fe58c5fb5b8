"""Run folders, and the operands that name their snapshots."""
