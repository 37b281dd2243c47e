from muse_plugin.results import markdown


def test_words_are_on_the_left_and_numbers_on_the_right():
    table = markdown.make_table(["model", "data", "BLEU"], [["muse", "Multi30k", "42.1"]], num_left=2)
    assert table == "| model | data | BLEU |\n|---|---|--:|\n| muse | Multi30k | 42.1 |"


def test_cells_stay_in_their_columns():
    assert markdown.make_row(["a|b", "c\nd"]) == "| a/b | c d |"
