"""The fingerprint changes with everything that a vector depends on, and with nothing else."""

from argparse import Namespace
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.inference.predict import LoadedModel, load_sentence_model
from muse_plugin.matching.fingerprint import encoder_parameters, fingerprint_encoder, fingerprint_vectors
from muse_plugin.models.head_wise_match_translation import HeadWiseMatchTranslationConfig
from muse_plugin.text.text_settings import StoredText, TextSettings


@pytest.fixture
def loaded(shop):
    return load_sentence_model(shop.yes_no)


def test_it_is_the_same_each_time_and_names_the_longest_text(shop, loaded):
    assert fingerprint_encoder(load_sentence_model(shop.yes_no)) == fingerprint_encoder(loaded)
    assert fingerprint_vectors("a", 5) != fingerprint_vectors("a", 6)
    assert len(fingerprint_vectors("a", 5)) == 64


def test_every_parameter_counts_but_for_those_that_see_only_vectors(loaded):
    tokens, lengths = torch.tensor([[4, 5, 6]]), torch.tensor([3])
    model = loaded.model.eval()
    before, vector = fingerprint_encoder(loaded), model.represent(tokens, lengths)
    counted = {name for name, _ in encoder_parameters(model)}
    seen = {True: 0, False: 0}
    for name, tensor in model.state_dict().items():
        kept = tensor.clone()
        with torch.no_grad():
            tensor.view(-1)[-1] += 1.0
        assert (fingerprint_encoder(loaded) != before) == (name in counted), name
        if name not in counted:
            assert_close(model.represent(tokens, lengths), vector, atol=0, rtol=0, why=name)
        seen[name in counted] += 1
        tensor.copy_(kept)
    assert fingerprint_encoder(loaded) == before
    assert min(seen.values()) >= 4


def test_a_model_may_name_the_modules_that_see_only_vectors(loaded):
    loaded.model.scoring_modules = ("classifier", "encoder")
    assert {name.split(".")[0] for name, _ in encoder_parameters(loaded.model)} == {"embedder"}


@pytest.mark.parametrize(
    ("flag", "value", "counts"),
    [
        ("pooling", "mean", True),
        ("input_projection", "needed", True),
        ("encoder_embed_dim", 8.5, True),
        ("dropout", 0.77, False),
        ("classifier_dropout", 0.77, False),
        ("classifier_activation", "tanh", False),
        ("pair_features", "difference_twice", False),
        ("word_vectors", "elsewhere.txt", False),
    ],
)
def test_flags_count_where_vectors_depend_on_them(loaded, flag, value, counts):
    cfg = Namespace(**{**vars(_plain(loaded.cfg)), flag: value})
    assert (fingerprint_encoder(loaded._replace(cfg=cfg)) != fingerprint_encoder(loaded)) == counts


def test_flags_that_begin_a_training_do_not_count():
    """The checkpoint holds what was read by them."""
    config = HeadWiseMatchTranslationConfig
    loaded = LoadedModel(
        torch.nn.Linear(2, 2), None, StoredText(TextSettings("en", subwords="none")), Namespace(**vars(config()))
    )
    loaded.model.config_class = config
    loaded = loaded._replace(task=SimpleNamespace(source_dictionary=None, character_dictionary=None))
    before = fingerprint_encoder(loaded)
    for flag, value in (("translation_checkpoint", "elsewhere.pt"), ("freeze_encoder", True)):
        assert fingerprint_encoder(loaded._replace(cfg=Namespace(**{**vars(loaded.cfg), flag: value}))) == before
    cfg = Namespace(**{**vars(loaded.cfg), "head_pooling": "max"})
    assert fingerprint_encoder(loaded._replace(cfg=cfg)) != before


def test_a_flag_that_is_not_stored_counts_as_its_default(loaded):
    values = vars(_plain(loaded.cfg))
    assert values.pop("pooling") == "max"
    assert fingerprint_encoder(loaded._replace(cfg=Namespace(**values))) == fingerprint_encoder(loaded)


def _plain(cfg):
    from omegaconf import OmegaConf

    return cfg if isinstance(cfg, Namespace) else Namespace(**OmegaConf.to_container(cfg, enum_to_str=True))


def _change(text, **settings):
    return text._replace(settings=replace(text.settings, **settings))


def test_text_and_dictionaries_count(loaded):
    before = fingerprint_encoder(loaded)
    for change in ({"lower_case": False}, {"tokenizer": "moses"}, {"lang": "de"}, {"strip_accents": True}):
        assert fingerprint_encoder(loaded._replace(text=_change(loaded.text, **change))) != before
    assert fingerprint_encoder(loaded._replace(text=loaded.text._replace(path="elsewhere"))) == before
    dropping = SimpleNamespace(
        **{name: getattr(loaded.task, name) for name in ("source_dictionary", "character_dictionary")}
    )
    assert fingerprint_encoder(loaded._replace(task=dropping)) == before
    dropping.dropped = 3
    assert fingerprint_encoder(loaded._replace(task=dropping)) != before
    words = loaded.task.source_dictionary.symbols
    for symbols, characters in ((words[::-1], None), (words, SimpleNamespace(symbols=words))):
        task = SimpleNamespace(source_dictionary=SimpleNamespace(symbols=symbols), character_dictionary=characters)
        assert fingerprint_encoder(loaded._replace(task=task)) != before


def test_the_comparison_of_heads_does_not_count_but_which_heads_does(shop, tmp_path):
    flags = ["--encoder-layers", "2", "--encoder-attention-heads", "2"]
    shop.save_checkpoint(
        tmp_path, shop.yes_no / "data", *flags, arch="head_wise_match_transformer", task="head_wise_match"
    )
    loaded = load_sentence_model(tmp_path)
    assert {name.split(".")[0] for name in loaded.model.state_dict()} - {"matcher"} == {
        name.split(".")[0] for name, _ in encoder_parameters(loaded.model)
    }
    before = fingerprint_encoder(loaded)

    def changes(**values):
        return fingerprint_encoder(loaded._replace(cfg=Namespace(**{**vars(_plain(loaded.cfg)), **values}))) != before

    assert not changes(match="cosine", match_aggregation="concat", match_dim=3, match_dropout=0.5)
    assert changes(match="classic")
    assert changes(match_levels="last")
    assert changes(head_pooling="mean")
    assert changes(encoder_attention_heads=4)


def test_other_codes_of_sub_words_count(loaded, tmp_path):
    """They cut the same text into other words of the same dictionary."""

    def fingerprint(codes):
        (tmp_path / "bpe.codes").write_text(codes)
        text = _change(loaded.text, subwords="subword-nmt")
        return fingerprint_encoder(loaded._replace(text=text._replace(path=tmp_path / "text", file="bpe.codes")))

    assert fingerprint("a") == fingerprint("a")
    assert len({fingerprint("a"), fingerprint("b"), fingerprint_encoder(loaded)}) == 3
