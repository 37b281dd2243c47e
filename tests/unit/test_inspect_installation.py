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
        'triton>=3.0; platform_system == "Linux" and extra == "dev"',
        'pywin32; (platform_system == "Windows" or os_name == "nt") and extra == "dev"',
        'triton>=3.0; platform_system == "Linux" and extra == "triton"',
        "matplotlib>=3.6; extra == 'figures'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    assert script.read_plugin_requirements() == [
        "numpy>=1.23",
        "tomli>=2; python_version < '3.11'",
        "pytest>=8.0",
        'triton>=3.0; platform_system == "Linux"',
        'pywin32; (platform_system == "Windows" or os_name == "nt")',
    ]


@pytest.mark.parametrize(
    ("marker", "complete"), [("platform_system == 'Nowhere'", True), ("python_version > '3'", False)]
)
def test_a_requirement_of_another_platform_need_not_be_installed(script, monkeypatch, marker, complete):
    requirements = ["numpy>=1.0", f"numpy>=1000; {marker}"]
    monkeypatch.setattr(script, "read_plugin_requirements", lambda: requirements)
    monkeypatch.setattr(script, "read_fairseq_requirements", lambda: [])
    monkeypatch.setattr(script, "has_compiled_fairseq", lambda: True)
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: SPEC)
    monkeypatch.setattr(script.Path, "is_file", lambda path: True)
    assert script.is_complete() == complete


SPEC = importlib.util.spec_from_file_location("muse_plugin", REPOSITORY / "muse_plugin" / "__init__.py")
