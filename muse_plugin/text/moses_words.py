"""Words of raw text as training data of translation have them: Moses' rules, as sacremoses has them."""

from muse_plugin.files.lines import clean_line

# What would read as a special symbol of a dictionary, written as words; <unk> stays and is what it says.
HARMLESS = {symbol: f"&lt;{symbol[1:-1]}&gt;" for symbol in ("<s>", "<pad>", "</s>", "<mask>")}


class MosesWords:
    """Words of a raw line of one language: cleaned, Moses-normalised, tokenised, escaped, optionally lower-cased.

    No word reads as a special symbol of a dictionary. With ``tokenize``, no word holds the marker of byte-pair encoding
    either: the tokeniser sets every at-sign apart and writes ``<`` as ``&lt;``.

    Args:
        lang: two-letter code of the language, which selects the rules.
        lower_case: whether words are lower-cased.
        normalize: whether punctuation is normalised first.
        tokenize: if false, words are what stands between spaces, and nothing is escaped.
        aggressive_hyphens: whether the tokeniser splits words at hyphens (``@-@``).

    Raises:
        ImportError: if the package sacremoses is missing.
    """

    def __init__(
        self,
        lang: str,
        lower_case: bool,
        normalize: bool = True,
        tokenize: bool = True,
        aggressive_hyphens: bool = False,
    ) -> None:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        self._normalizer = MosesPunctNormalizer(lang=lang) if normalize else None
        self._tokenizer = MosesTokenizer(lang=lang) if tokenize else None
        self._aggressive_hyphens = aggressive_hyphens
        self._lower_case = lower_case

    def __call__(self, line: str) -> list[str]:
        """Returns the words; an empty list if there is nothing but space."""
        line = clean_line(line)
        if self._normalizer is not None:
            line = self._normalizer.normalize(line)
        if self._tokenizer is not None:
            line = self._tokenizer.tokenize(line, aggressive_dash_splits=self._aggressive_hyphens, return_str=True)
        if self._lower_case:
            line = line.lower()
        words = clean_line(line).split()
        return words if self._tokenizer is not None else [HARMLESS.get(word, word) for word in words]
