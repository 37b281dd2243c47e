"""Turns the raw lines of a text into tokens, as its settings say, and tokens back into a line.

The steps for a line: clean it (white space of every kind is a space, control characters are, too, invisible format
characters vanish), normalise and tokenise it with Moses' rules (sacremoses), lower-case it (a word that is not cut
remembers how it was written), make harmless what would read as a special symbol of a dictionary, and cut words into
subwords. The rule for special symbols: ``<s>``, ``</s>``,
``<pad>`` and ``<mask>`` in a text are written ``&lt;s&gt;`` and so on, ordinary words; ``<unk>`` stays and is what it
says, an unknown word. Word pieces are a way of their own: BERT's (see ``word_pieces.py``).
"""

import re
from collections.abc import Iterable
from typing import Any, Union

from muse_plugin.files.lines import clean_line
from muse_plugin.text import SPECIAL_SYMBOLS
from muse_plugin.text.byte_pair_encoding import BPE_MARKER, BytePairEncoding
from muse_plugin.text.lowered_words import lower_word
from muse_plugin.text.sentence_pieces import SPACE_MARK, SentencePieces, join_pieces
from muse_plugin.text.text_settings import StoredText, TextSettings
from muse_plugin.text.word_pieces import PieceRules, WordPieces, parse_vocabulary

_HARMLESS = {symbol: f"&lt;{symbol[1:-1]}&gt;" for symbol in SPECIAL_SYMBOLS if symbol != "<unk>"}
# The detokeniser writes the time of day "2 : 30" as "2: 30".
_CLOCK_TIME = re.compile(r"\b(\d{1,2}): (\d\d)\b")


class Tokenizer:
    """Tokens of the raw lines of one text, and lines of tokens.

    No token reads as a special symbol of a dictionary, but for ``<unk>`` where text is split at spaces. Words that are
    tokenised by Moses and escaped do not hold the marker of byte-pair encoding either: the tokeniser sets every at-sign
    apart and writes ``<`` as ``&lt;``.

    Args:
        settings: what is done to the text.
        content: of the file of its subwords: codes of subword-nmt, a ``.model`` of SentencePiece or a vocabulary of
            word pieces; nothing without subwords.
        where: what to call that file in messages.

    Raises:
        ImportError: if a package is missing that the settings need.
        ValueError: if ``content`` is none of its kind.
    """

    def __init__(self, settings: TextSettings, content: bytes = b"", where: str = "the given subwords") -> None:
        self.settings = settings
        self.content = content
        self._normalizer = _load_moses("MosesPunctNormalizer", settings.lang) if settings.normalize else None
        self._moses = _load_moses("MosesTokenizer", settings.lang) if settings.tokenizer == "moses" else None
        self._detokenizer = _load_moses("MosesDetokenizer", settings.lang) if settings.detokenize else None
        self._pieces: Union[BytePairEncoding, SentencePieces, None] = None
        self._word_pieces = None
        if settings.subwords == "subword-nmt":
            self._pieces = BytePairEncoding(content.decode("utf-8", errors="replace"), where)
        elif settings.subwords == "sentencepiece":
            self._pieces = SentencePieces(content, where)
        elif settings.subwords == "wordpiece":
            rules = PieceRules(settings.lower_case, settings.strip_accents, settings.split_chinese)
            self._word_pieces = WordPieces(parse_vocabulary(content, where), rules)

    @classmethod
    def load(cls, stored: StoredText) -> "Tokenizer":
        """Makes the tokenizer of a text that a file describes.

        Raises:
            FileNotFoundError: if the file of its subwords is missing.
            ImportError: as the class.
            ValueError: if that file is damaged.
        """
        return cls(stored.settings, stored.read_subwords(), str(stored.place))

    def split(self, line: str) -> list[str]:
        """Returns the tokens of a raw line; an empty list if there is nothing but space."""
        if self._word_pieces is not None:
            return self._word_pieces.split(line)
        line = clean_line(line)
        if self._normalizer is not None:
            line = self._normalizer.normalize(line)
        if self._moses is not None:
            line = self._moses.tokenize(
                line,
                aggressive_dash_splits=self.settings.aggressive_hyphens,
                return_str=True,
                escape=self.settings.escape,
            )
        return self.cut([self._finish(word) for word in clean_line(line).split()])

    def cut(self, words: list[str]) -> list[str]:
        """Returns the subwords of words, which are the words themselves without subwords."""
        return words if self._pieces is None else self._pieces.split(words)

    def list_pieces(self) -> list[str]:
        """Returns the pieces that the subwords make; nothing without subwords, whose words nobody can list."""
        pieces = [] if self._pieces is None else self._pieces.list_pieces()
        return [piece for piece in pieces if piece == self._finish(piece)]

    def can_make(self, token: str) -> bool:
        """Whether some raw text has this token."""
        if self._word_pieces is not None:
            return True  # their vocabulary is the dictionary itself
        if self._pieces is None:
            is_made = not token.endswith(BPE_MARKER) and not token.startswith(SPACE_MARK)
        else:
            is_made = self._pieces.can_make(token)
        return is_made and token == self._finish(token)

    def clean_words(self, words: Iterable[str]) -> list[str]:
        """Returns as many words as given, for text whose words are given one by one, as those with tags are.

        White space within a word becomes ``_``; a word of nothing but white space and invisible characters becomes
        U+FFFD. Nothing is tokenised.
        """
        return [self._finish(clean_line(word).replace(" ", "_") or "\N{REPLACEMENT CHARACTER}") for word in words]

    def _finish(self, word: str) -> str:
        if self.settings.lower_case:
            word = lower_word(word)
        return _HARMLESS.get(word, word)

    def join(self, tokens: str) -> str:
        """Returns the line of tokens that spaces separate."""
        if self.settings.subwords == "sentencepiece":
            text = join_pieces(tokens.split())
        elif self.settings.subwords == "subword-nmt":
            text = (tokens.strip() + " ").replace(BPE_MARKER + " ", "")
        else:
            text = tokens
        words = text.split()
        if not words or self._detokenizer is None:
            return clean_line(" ".join(words))
        return _CLOCK_TIME.sub(r"\1:\2", clean_line(self._detokenizer.detokenize(words)))


def _load_moses(name: str, lang: str) -> Any:
    """Makes one of Moses' tools; text that needs none does not wait for them."""
    import sacremoses

    return getattr(sacremoses, name)(lang=lang)
