"""Texts are divided into sentences without the loss of a character."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muse_plugin.serve.sentences import divide_text


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", [""]),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said: "Go." She went.', ['He said: "Go."', "She went."]),
        ("Am 3. Mai regnet es. Danach nicht.", ["Am 3. Mai regnet es.", "Danach nicht."]),
        ("Nimm z. B. Wasser. Oder Saft", ["Nimm z. B. Wasser.", "Oder Saft"]),
        ("about 3.5 per cent. and more", ["about 3.5 per cent. and more"]),
        ("One line\nAnother. Third\n\n", ["One line", "Another.", "Third", ""]),
        ("你好。 再见。", ["你好。", "再见。"]),
    ],
)
def test_sentences_end_where_people_end_them(text, sentences):
    assert divide_text(text)[::2] == sentences


def test_only_line_breaks_may_count():
    assert divide_text("One. Two.\nThree.", within_lines=False) == ["One. Two.", "\n", "Three."]


@given(st.text(alphabet=st.sampled_from(".!? \n\t\"'ab3AB。\u2028"), max_size=60), st.booleans())
def test_the_parts_are_the_text(text, within_lines):
    parts = divide_text(text, within_lines)
    assert "".join(parts) == text
    assert len(parts) % 2 == 1
    assert all(not part.strip() for part in parts[1::2])


@pytest.mark.parametrize("text", ["a" + " " * 400_000 + "b", "A. " * 150_000 + "B"], ids=["spaces", "abbreviations"])
def test_the_time_grows_with_the_length(text):
    """In time quadratic in the length these would take minutes."""
    started = time.monotonic()
    assert divide_text(text) == [text]
    assert time.monotonic() - started < 20
