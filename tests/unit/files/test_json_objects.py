"""What a damaged JSON file is told."""

import pytest

from muse_plugin.files.json_objects import FileName, check_faults, find_faults, read_json_object, read_settings


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "must be a JSON file, but reading it gave"),
        (b"\xff", "must be a JSON file, but reading it gave"),
        (b"[" * 100_000, "must be a JSON file, but reading it gave"),
        (b"[1]", "must hold a JSON object, but got a list; make it again"),
        (b"1" * 200_000, "must have at most 150,000 bytes, but has 200,000; make it again"),
    ],
)
def test_a_damaged_file_is_named_with_the_way_out(tmp_path, content, said):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        read_json_object(path, "make it again", 150_000)
    assert str(error.value).startswith(str(path))
    assert str(error.value).endswith("; make it again.")


def test_fields_are_compared_by_name_and_type(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1, "b": true}')
    content = read_json_object(path, "make it again")
    assert find_faults(content, {"a": int, "b": bool}) == []
    assert find_faults(content, {"a": bool, "c": int}, "x.") == [
        "'x.c' is missing", "'x.b' is unknown", "'x.a' must be bool but is 1"
    ]  # fmt: skip
    assert find_faults([1], {"a": int}, "x.") == ["'x' must be an object but is [1]"]


def test_versions_choices_and_names_of_files_are_checked(tmp_path):
    path = tmp_path / "a.json"
    kinds = {"file": FileName, "case": ("lower", "upper")}
    path.write_text('{"format_version": 2, "file": "a", "case": "lower"}')
    assert read_settings(path, (1, 2), "make it again") == (2, {"file": "a", "case": "lower"})
    with pytest.raises(ValueError, match=r"must have format_version 1 or 3, but got 2; make it again"):
        read_settings(path, (1, 3), "make it again")
    for name in ("", ".", "..", "../a", "/a", "a\0b"):
        rule = f"'file' must be a file name without folders but is {name!r}"
        assert find_faults({"file": name, "case": "upper"}, kinds) == [rule]
    faults = find_faults({"file": 1, "case": "title"}, kinds)
    assert faults == ["'file' must be str but is 1", "'case' must be one of lower, upper but is 'title'"]
    check_faults(path, [], "make it again")
    with pytest.raises(ValueError, match=r"a\.json must be as it was written, but 'file' must be str but is 1; 'case'"):
        check_faults(path, faults, "make it again")
