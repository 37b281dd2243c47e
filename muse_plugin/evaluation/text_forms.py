"""The forms of a sentence that scores are computed on: subword tokens, words, raw text.

A translation comes as subword tokens or as words. ``remove_subwords`` makes words; ``TextForms`` holds the words, which
tokenised BLEU reads, next to the raw text, which sacreBLEU reads.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

from fairseq.data.data_utils import post_process

_SUBWORD_MARK = "@@ "
_SENTENCEPIECE_MARK = "\u2581"

# fairseq writes an unknown word as <unk> in a hypothesis and as <<unk>> in a reference, so that they never match.
UNKNOWN = "<unk>"
UNKNOWN_REFERENCE = "<<unk>>"
# The tokenisation of sacreBLEU takes both apart, and then parts match. This character occurs in no text.
_UNKNOWN_REFERENCE_RAW = "\ue000"

# ISO 639-1, and those of three letters for which Moses has rules.
LANGUAGES = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it "
    "iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt "
    "my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl "
    "sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo "
    "za zh zu mni tdt yue".split()
)


class TextForms(NamedTuple):
    """The sentences of one text in the forms that scores need, all of the same length.

    Attributes:
        words: tokens separated by single spaces, or None if only the raw text is known and not its language.
        raw: text as people write it, or None if only the words are known and not their language.
    """

    words: Optional[list[str]]
    raw: Optional[list[str]]


def check_language(lang: str, flag: str) -> None:
    """Refuses what is no code of a language.

    Raises:
        ValueError: if ``lang`` is not in ``LANGUAGES``; Moses' programs would treat it as English without a word.
    """
    if lang not in LANGUAGES:
        raise ValueError(
            f"{flag} must be the code of a language in small letters, such as de, en or vi, but got '{lang}'; see ISO "
            "639-1 for the codes."
        )


def find_subword_kind(lines: Sequence[str]) -> str:
    """Returns which subword marks a text has: ``subword_nmt`` if ``@@ `` occurs in it, else ``none``."""
    return "subword_nmt" if any(_SUBWORD_MARK in line + " " for line in lines) else "none"


def has_sentencepiece_marks(lines: Sequence[str]) -> bool:
    """Returns whether the character of SentencePiece for a space occurs."""
    return any(_SENTENCEPIECE_MARK in line for line in lines)


def has_subwords(lines: Sequence[str], kind: Optional[str] = None) -> bool:
    """Returns whether a text is in subword tokens; ``kind`` as for ``remove_subwords``, and ``none`` takes any text."""
    if kind == "sentencepiece":
        return has_sentencepiece_marks(lines)
    return kind == "none" or find_subword_kind(lines) != "none"


def remove_subwords(lines: Sequence[str], kind: Optional[str] = None) -> list[str]:
    """Joins subword tokens to words, as fairseq's ``--post-process`` does, where the text has such marks.

    fairseq itself would join a whole sentence without SentencePiece marks to one word.

    Args:
        lines: subword tokens separated by spaces, or words.
        kind: "subword_nmt", "sentencepiece" or "none"; found in the text itself if None.

    Returns:
        The words of each line.
    """
    kind = find_subword_kind(lines) if kind is None else kind
    if kind == "sentencepiece" and not has_sentencepiece_marks(lines):
        return list(lines)
    return [post_process(line, kind) for line in lines]


def mark_unknown_words(references: Sequence[str]) -> list[str]:
    """Writes ``<unk>`` among the words of references as ``<<unk>>``, which no hypothesis has: it never matches.

    multi-bleu.perl counts equal strings, so that an unknown word would match any other; fairseq's scorer, which is
    followed here, does not.
    """
    return [
        " ".join(UNKNOWN_REFERENCE if word == UNKNOWN else word for word in line.split(" "))
        if UNKNOWN in line
        else line
        for line in references
    ]


def hide_unknown_words(raw_references: Sequence[str]) -> list[str]:
    """Puts one character that occurs in no text for each ``<<unk>>`` of raw references, for sacreBLEU."""
    return [line.replace(UNKNOWN_REFERENCE, _UNKNOWN_REFERENCE_RAW) for line in raw_references]


def make_forms(lines: Sequence[str], is_raw: bool, lang: Optional[str]) -> TextForms:
    """Makes the other form of a text with the rules of Moses, as ported by sacremoses.

    Raw text becomes words by the tokeniser in its ordinary setting (hyphens stay, ``&`` becomes ``&amp;``); words
    become raw text by the detokeniser, which also undoes such entities and ``@-@``.

    Args:
        lines: the sentences.
        is_raw: whether they are raw text; otherwise they are words.
        lang: two-letter code of their language, for the rules; without it the other form is None.
    """
    if is_raw:
        return TextForms(None if lang is None else list(map(_tokenizer(lang), lines)), list(lines))
    return TextForms(list(lines), None if lang is None else list(map(_detokenizer(lang), lines)))


@functools.cache
def _tokenizer(lang: str) -> Callable[[str], str]:
    from sacremoses import MosesTokenizer

    return functools.partial(MosesTokenizer(lang=lang).tokenize, return_str=True)


@functools.cache
def _detokenizer(lang: str) -> Callable[[str], str]:
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=lang)
    return lambda line: detokenizer.detokenize(line.split(" "))
