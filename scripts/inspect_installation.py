"""Answers the questions of ``setup.sh`` about the environment that it runs in; standard library only.

requirements EXTRA...: what muse_plugin and extras of it need besides torch and fairseq, one per line.
fairseq: the pinned fairseq requirement.
has-compiled-fairseq: exit code 0 if fairseq's compiled extensions are there.
place-stand-ins: copies what stands in for modules that are not compiled, or that Python 3.14 cannot use, into the
    installed fairseq.
is-current FILE EXTRA...: exit code 0 if nothing has to be installed since ``mark-current FILE``.
mark-current FILE: writes a digest of what was installed.
forget-damaged: makes pip reinstall packages whose installation was cut off.
"""

import hashlib
import importlib.metadata as metadata
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WATCHED = [
    "setup.py",
    "pyproject.toml",
    "muse_plugin/__init__.py",  # the version
    "scripts/requirements-fairseq.txt",
    "scripts/setup.sh",
    "scripts/inspect_installation.py",
]
SEPARATELY = ("torch", "fairseq-fixed")
OPTIONAL = "seqeval"  # its build may fail; the rest works without it
STAND_INS = ROOT / "muse_plugin" / "fairseq_stand_ins"
AS_PACKAGE = Path("dataclass", "utils.py")  # found as a package before fairseq's module of this name
FILES = [path.relative_to(STAND_INS) for path in STAND_INS.rglob("*.py") if path.name != "__init__.py"]
EXTENSIONS = [name for name in FILES if name != AS_PACKAGE]


def read_plugin_requirements(extras):
    """Reads what the installed muse_plugin and extras of it ask for."""
    required = []
    for line in metadata.requires("muse_plugin") or []:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        # "(condition) and extra == 'dev'": pip decides about the condition.
        found = re.fullmatch(r"(?:(.*?) and )?extra == ['\"](\w+)['\"]|(.*)", marker)
        condition, extra = found[1] or found[3], found[2]
        if extra is None or extra in extras:
            required.append(f"{requirement}; {condition}" if condition else requirement)
    return required


def read_name(requirement):
    """Returns the distribution's name in ``name>=1.0``."""
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0]


def read_fairseq_requirements():
    """Reads the list of what fairseq needs."""
    lines = (ROOT / "scripts" / "requirements-fairseq.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def describe_installation():
    """Digests everything whose change calls for a new installation."""
    digest = hashlib.sha256()
    for name in WATCHED:
        digest.update((ROOT / name).read_bytes() + b"\0")
    for fact in (sys.version, sys.prefix, str(ROOT), metadata.version("torch")):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()


def is_complete(extras):
    """Returns whether every requirement is met by an installed version, extensions of fairseq or stand-ins included."""
    from packaging.requirements import Requirement

    for line in read_plugin_requirements(extras) + read_fairseq_requirements():
        requirement = Requirement(line)
        if requirement.name == OPTIONAL or (requirement.marker is not None and not requirement.marker.evaluate()):
            continue
        if not requirement.specifier.contains(metadata.version(requirement.name), prereleases=True):
            return False
    plugin = importlib.util.find_spec("muse_plugin")
    same = plugin is not None and Path(plugin.origin).resolve().parent == ROOT / "muse_plugin"
    has_stand_ins = all(find_extension_files(name) for name in EXTENSIONS) and find_package().is_file()
    return same and has_stand_ins and (Path(sys.prefix) / "bin" / "muse-plugin").is_file()


def find_extension_files(name):
    """Returns the installed files of an extension of fairseq: compiled code, a stand-in, both or none."""
    return list(find_fairseq().joinpath(name.parent).glob(f"{name.stem}.*"))


def find_fairseq():
    """Returns the folder of the installed fairseq."""
    fairseq = importlib.util.find_spec("fairseq")
    if fairseq is None or not fairseq.origin:
        raise ImportError("fairseq is not installed")
    return Path(fairseq.origin).parent


def has_compiled_fairseq():
    """Returns whether the installed fairseq holds all of its compiled extensions that its commands use."""
    return all(any(file.suffix != ".py" for file in find_extension_files(name)) for name in EXTENSIONS)


def find_package():
    """Returns where the one stand-in belongs that is copied as a package."""
    return find_fairseq() / AS_PACKAGE.with_suffix("") / "__init__.py"


def place_stand_ins():
    """Copies what stands in for extensions that are not there, and for the module that Python 3.14 cannot use."""
    find_package().parent.mkdir(exist_ok=True)
    shutil.copyfile(STAND_INS / AS_PACKAGE, find_package())
    for name in EXTENSIONS:
        if not find_extension_files(name):
            shutil.copyfile(STAND_INS / name, find_fairseq() / name)


def is_current(stamp, extras):
    """Returns whether the stamp fits and nothing has been removed or changed since."""
    try:
        return stamp.read_text(encoding="utf-8") == describe_installation() and is_complete(extras)
    except (OSError, ImportError, metadata.PackageNotFoundError):
        return False


def is_intact(distribution):
    """Returns whether every file of a distribution is there in its full size. pip writes the list of files last."""
    text = distribution.read_text("RECORD")
    if text is None:
        return False
    for file in distribution.files or []:
        path = distribution.locate_file(file)
        if file.size is not None and (not os.path.isfile(path) or os.path.getsize(path) != file.size):
            return False
    return True


def forget_damaged():
    """Removes the metadata of half-installed packages of this environment, so that pip installs them again."""
    for distribution in list(metadata.distributions()):
        folder = getattr(distribution, "_path", None)
        if folder is None or not str(folder).endswith(".dist-info") or not str(folder).startswith(sys.prefix):
            continue
        if distribution.name != "pip" and not is_intact(distribution):
            print(f"the installation of {Path(folder).name} was cut off; it is installed again")
            shutil.rmtree(folder)


def main():
    """Runs the question in ``sys.argv``."""
    question, *rest = sys.argv[1:]
    if question == "requirements":
        lines = read_plugin_requirements(rest)
        print("\n".join(line for line in lines if read_name(line) not in (*SEPARATELY, OPTIONAL)))
    elif question == "fairseq":
        print(next(line for line in read_plugin_requirements([]) if read_name(line) == "fairseq-fixed"))
    elif question == "has-compiled-fairseq":
        return 0 if has_compiled_fairseq() else 1
    elif question == "place-stand-ins":
        place_stand_ins()
    elif question == "is-current":
        return 0 if is_current(Path(rest[0]), rest[1:]) else 1
    elif question == "mark-current":
        Path(rest[0]).write_text(describe_installation(), encoding="utf-8")
    elif question == "forget-damaged":
        forget_damaged()
    else:
        sys.exit(f"unknown question: {question}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
