"""Queries about single blocks of a heap."""
