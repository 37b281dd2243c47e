"""Words of raw text as training data of translation have them: Moses' rules, as sacremoses has them."""

from muse_plugin.files.text_streams import clean_line


class MosesWords:
    """Words of a raw line of one language: cleaned, Moses-normalised, tokenised, escaped, optionally lower-cased.

    No word holds the marker of byte-pair encoding or reads as a special symbol of a dictionary: the tokeniser sets
    every at-sign apart and writes ``<`` as ``&lt;``.

    Args:
        lang: two-letter code of the language, which selects the rules.
        lower_case: whether words are lower-cased.

    Raises:
        ImportError: if the package sacremoses is missing.
    """

    def __init__(self, lang: str, lower_case: bool) -> None:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        self._normalizer = MosesPunctNormalizer(lang=lang)
        self._tokenizer = MosesTokenizer(lang=lang)
        self._lower_case = lower_case

    def __call__(self, line: str) -> list[str]:
        """Returns the words; an empty list if there is nothing but space."""
        line = self._normalizer.normalize(clean_line(line))
        line = self._tokenizer.tokenize(line, return_str=True)
        if self._lower_case:
            line = line.lower()
        return clean_line(line).split()
