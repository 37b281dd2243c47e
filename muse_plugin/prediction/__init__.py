"""Labels, numbers and tags for raw text."""
