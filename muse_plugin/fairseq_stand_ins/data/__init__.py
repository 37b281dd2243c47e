"""Stand-ins for the extensions in ``fairseq/data``."""
