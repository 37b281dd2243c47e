import pytest
from support.helpers import REPOSITORY, load_program, run_python

TOOLS = REPOSITORY / "examples" / "recipe"


@pytest.fixture(scope="module")
def markdown_table():
    return load_program(TOOLS / "markdown_table.py")


def test_words_are_on_the_left_and_numbers_on_the_right(markdown_table):
    table = markdown_table.make_table(["model", "data", "BLEU"], [["muse", "Multi30k", "42.1"]], num_left=2)
    assert table == "| model | data | BLEU |\n|---|---|--:|\n| muse | Multi30k | 42.1 |"


def test_cells_stay_in_their_columns(markdown_table):
    assert markdown_table.make_row(["a|b", "c\nd"]) == "| a/b | c d |"


def test_deviation_is_written_where_there_are_several_values(markdown_table):
    assert markdown_table.format_mean([2.0, 4.0, 9.0]) == "5.00 ± 3.61"
    assert markdown_table.format_mean([0.0625], 3) == "0.062"
    assert markdown_table.format_mean([]) == ""


def test_a_table_of_stored_results_does_not_wait_for_torch(tmp_path):
    code = f"import sys; sys.path.append({str(TOOLS)!r}); import results_table; print('torch' in sys.modules)"
    assert run_python(code, cwd=tmp_path).stdout == "False\n"
