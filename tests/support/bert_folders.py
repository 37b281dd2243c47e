"""Small BERTs of random weights in folders as Hugging Face's transformers writes them."""

import sys

import pytest
import torch

try:
    import torchaudio  # noqa: F401
except (ImportError, OSError):  # a build for another torch, over which transformers would stumble
    sys.modules["torchaudio"] = None
transformers = pytest.importorskip("transformers")

LAYERS, HEADS, WIDTH, PIECES = 3, 4, 24, 40


def make_bert(folder, seed=0, safe=True, wrapped=False, **settings):
    """A small BERT of random weights on disk; biases and norms are random too, since zeros and ones hide mistakes."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        **{
            "vocab_size": PIECES,
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "intermediate_size": 30,
            "max_position_embeddings": 16,
            **settings,
        }
    )
    bert = transformers.BertModel(config).eval()
    with torch.no_grad():
        for name, parameter in bert.named_parameters():
            parameter.normal_(std=0.3).add_(float("LayerNorm.weight" in name))
    folder.mkdir(exist_ok=True)
    if safe:
        bert.save_pretrained(folder)
        return bert
    config.save_pretrained(folder)
    state = {f"bert.{name}" if wrapped else name: tensor for name, tensor in bert.state_dict().items()}
    if wrapped:  # as the first releases were written
        state = {
            k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
            for k, v in state.items()
        }
        state["cls.predictions.bias"] = torch.zeros(PIECES)
    torch.save(state, folder / "pytorch_model.bin")
    return bert
