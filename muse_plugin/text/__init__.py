"""From raw text to tokens and back. Nothing here knows torch."""

import re

SPECIAL_SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # words that dictionaries of fairseq reserve
FILLER = re.compile(r"madeupword[0-9]{4}")  # fairseq's rows that stand for no word
