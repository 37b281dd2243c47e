"""Modules of ``fairseq.dataclass``."""
