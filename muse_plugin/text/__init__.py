"""From raw text to tokens and back. Nothing here knows torch."""
