"""Checkpoint files in, checkpoint files out: safe loading, averaging, the authors' format."""
