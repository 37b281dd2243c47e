"""The requirements that ``scripts/setup.sh`` hands to pip."""

import importlib.util
from importlib import metadata

import pytest
from support.helpers import REPOSITORY, load_program


@pytest.fixture
def script():
    return load_program(REPOSITORY / "scripts" / "inspect_installation.py")


def test_conditions_are_kept_and_other_extras_left_out(script, monkeypatch):
    lines = [
        "numpy>=1.23",
        "tomli>=2; python_version < '3.11'",
        "pytest>=8.0; extra == 'dev'",
        "gensim>=4.3; extra == 'recipes'",
        'triton>=3.0; platform_system == "Linux" and extra == "dev"',
        'pywin32; (platform_system == "Windows" or os_name == "nt") and extra == "dev"',
        'triton>=3.0; platform_system == "Linux" and extra == "triton"',
        "matplotlib>=3.6; extra == 'figures'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    user = ["numpy>=1.23", "tomli>=2; python_version < '3.11'", "gensim>=4.3"]
    assert script.read_plugin_requirements(["recipes"]) == user
    assert script.read_plugin_requirements(["dev", "recipes"]) == [
        "numpy>=1.23",
        "tomli>=2; python_version < '3.11'",
        "pytest>=8.0",
        "gensim>=4.3",
        'triton>=3.0; platform_system == "Linux"',
        'pywin32; (platform_system == "Windows" or os_name == "nt")',
    ]


@pytest.mark.parametrize(
    ("requirement", "complete"),
    [
        ("numpy>=1000; platform_system == 'Nowhere'", True),
        ("numpy>=1000; python_version > '3'", False),
        ("seqeval>=1000", True),  # its build may have failed
    ],
)
def test_a_requirement_of_another_platform_need_not_be_installed(script, monkeypatch, requirement, complete):
    monkeypatch.setattr(script, "read_plugin_requirements", lambda extras: ["numpy>=1.0", requirement])
    monkeypatch.setattr(script, "read_fairseq_requirements", lambda: [])
    monkeypatch.setattr(script, "find_extension_files", lambda name: [name])
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: SPEC)
    monkeypatch.setattr(script.Path, "is_file", lambda path: True)
    assert script.is_complete(["recipes"]) == complete


SPEC = importlib.util.spec_from_file_location("muse_plugin", REPOSITORY / "muse_plugin" / "__init__.py")


def test_stand_ins_are_placed_only_where_nothing_was_compiled(script, monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "dataclass").mkdir()
    (tmp_path / "libbleu.cpython-311.so").touch()
    (tmp_path / "data" / "data_utils_fast.cpython-311.so").touch()
    monkeypatch.setattr(script, "find_fairseq", lambda: tmp_path)
    assert not script.has_compiled_fairseq()
    script.place_stand_ins()
    placed = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py"))
    assert placed == ["data/token_block_utils_fast.py", "dataclass/utils/__init__.py"]
    assert not script.has_compiled_fairseq()
    (tmp_path / "data" / "token_block_utils_fast.cpython-311.so").touch()
    assert script.has_compiled_fairseq()
