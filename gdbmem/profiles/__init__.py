"""Heap profiles as call trees (`show`, `diff`): their difference, rankings, text, JSON, exports."""
