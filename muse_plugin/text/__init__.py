"""From raw text to tokens and back. Nothing here knows torch."""

SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # words that dictionaries of fairseq reserve
