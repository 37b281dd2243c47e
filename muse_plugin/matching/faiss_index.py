"""An index of cached vectors for approximate search; needs the optional package faiss.

The cosine of whole vectors is what it looks for. Vectors that fit into memory are compared exactly; of more, an
inverted file with product quantisation keeps a few bytes each. The index is in the folder of the cache, and its name
says which vectors it is of: one of other vectors is never used.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.matching.vector_cache import INDEX_PREFIX, VectorCache

_MOST_CODE_BYTES = 256  # per vector
_CODE_VALUES = 256  # of a byte, which as many vectors are needed to learn
_VECTORS_PER_LIST = 64  # to learn the lists of an inverted file from
_LEAST_PER_LIST = 39  # where the memory is too small for as many; faiss warns of fewer


def import_faiss() -> Any:
    """The package faiss.

    Raises:
        ImportError: if it is missing.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "--first-stage faiss needs the package faiss, which is missing; run 'pip install faiss-cpu', or use "
            "--first-stage cosine, which is exact."
        ) from error
    return faiss


def choose_kind(rows: int, width: int, memory: int) -> str:
    """The index for so many vectors, as ``faiss.index_factory`` spells it.

    Args:
        rows: number of vectors.
        width: of a vector.
        memory: in MiB; a quarter of it is for the index.

    Returns:
        ``Flat``, which is exact, if the vectors fit or are too few to learn from; ``IVF...,PQ...`` otherwise.
    """
    limit = (memory << 20) // 4
    if rows * width * 4 <= limit or rows < _CODE_VALUES:
        return "Flat"
    most = _count_learned_from(width, memory) // _LEAST_PER_LIST
    lists = max(1, min(int(4 * math.sqrt(rows)), rows // _VECTORS_PER_LIST, most))
    most = max(1, min(_MOST_CODE_BYTES, limit // rows, width))
    code = max(size for size in range(1, most + 1) if width % size == 0)
    return f"IVF{lists},PQ{code}"


def _count_learned_from(width: int, memory: int) -> int:
    """How many vectors, at most, an index learns from: those that fit into a quarter of the memory."""
    return max(_CODE_VALUES, (memory << 20) // 4 // (4 * width))


def load_or_build(corpus: VectorCache, memory: int, block_rows: int) -> Any:
    """The index of a cache; the first time it is built and stored.

    Args:
        corpus: the vectors.
        memory: in MiB.
        block_rows: vectors in memory at once while it is built.

    Returns:
        A faiss index by inner product of unit vectors.

    Raises:
        ImportError: if faiss is missing.
        ValueError: if the stored index is damaged.
    """
    faiss = import_faiss()
    kind = choose_kind(len(corpus), corpus.width, memory)
    path = index_path(corpus, kind)
    if path.exists():
        index = _read(faiss, path)
        if index is None or index.ntotal != len(corpus) or index.d != corpus.width:
            raise ValueError(
                f"{path} must be an index of {len(corpus):,} vectors of width {corpus.width}, but it is damaged; "
                "remove it, and it is made again."
            )
    else:
        index = _build(faiss, corpus, kind, memory, block_rows)
        with open_atomically(path) as file:
            faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
    if kind != "Flat":
        lists = faiss.extract_index_ivf(index)
        lists.nprobe = max(1, min(lists.nlist, max(16, lists.nlist // 16)))
    return index


def find_by_index(index: Any, queries: Tensor, k: int) -> Tensor:
    """Candidates of each query.

    Args:
        index: from ``load_or_build``.
        queries: vectors, shape (Q, R).
        k: candidates per query.

    Returns:
        Row numbers, shape (Q, k), int64; -1 where there are fewer.
    """
    _, rows = index.search(_unit(queries), k)
    return torch.from_numpy(np.asarray(rows, dtype=np.int64))


def index_path(corpus: VectorCache, kind: str) -> Path:
    """Where the index of these vectors is, or would be."""
    meta = corpus.meta
    made_of = [meta.fingerprint, meta.text_sha256, meta.with_ids, meta.dtype, meta.width, meta.sentences, kind]
    name = hashlib.sha256(json.dumps(made_of).encode("utf-8")).hexdigest()[:16]
    return corpus.folder / f"{INDEX_PREFIX}{name}.faiss"


def _build(faiss: Any, corpus: VectorCache, kind: str, memory: int, block_rows: int) -> Any:
    # "np": to order the values of codes takes seconds for each byte of them, for a kind of search that is not used.
    spelt = kind if kind == "Flat" else f"{kind}np"
    index = faiss.index_factory(corpus.width, spelt, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        lists = faiss.extract_index_ivf(index).nlist
        count = min(
            len(corpus), _count_learned_from(corpus.width, memory), max(_VECTORS_PER_LIST * lists, 64 * _CODE_VALUES)
        )
        sample = torch.linspace(0, len(corpus) - 1, count).round().long()
        index.train(_unit(corpus.gather(sample)))
    with tqdm(total=len(corpus), desc="index", unit=" vectors", disable=None) as bar:
        for _, block in corpus.blocks(block_rows):
            index.add(_unit(block))
            bar.update(len(block))
    return index


def _read(faiss: Any, path: Path) -> Optional[Any]:
    try:
        return faiss.read_index(str(path))
    except (RuntimeError, MemoryError):  # what faiss raises for anything that is no index
        return None


def _unit(vectors: Tensor) -> np.ndarray:
    return np.ascontiguousarray(F.normalize(vectors, dim=1).numpy())
