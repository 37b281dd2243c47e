"""SimCut: numbers by hand on three tokens, then what must hold for every model."""

import copy
import math

import pytest
import torch
from fairseq.distributed import ModuleProxyWrapper
from fairseq.logging import metrics
from fairseq.models import FairseqDecoder, FairseqEncoder, FairseqEncoderDecoderModel
from support.fairseq_commands import parse_training
from support.helpers import assert_close
from support.reference import make_dictionary
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from muse_plugin.criterions.label_smoothed_cross_entropy_with_simcut import NAME, cut_tokens

PLAIN = "label_smoothed_cross_entropy"
PAD, EOS, UNK = 1, 2, 3
EVERY_WORD = math.nextafter(1, 0)  # rounds to 1 in float32, and random numbers are below 1

# ---- by hand ---------------------------------------------------------------------------------------------------------

LN2, LN5 = math.log(2), math.log(5)
TARGET = (0, 3, 2)
WHOLE = ((1 / 2, 1 / 4, 1 / 8, 1 / 8), (1 / 4, 1 / 4, 1 / 4, 1 / 4), (1 / 8, 1 / 8, 1 / 4, 1 / 2))
CUT = ((1 / 4, 1 / 2, 1 / 8, 1 / 8), (5 / 8, 1 / 8, 1 / 8, 1 / 8), (1 / 8, 1 / 8, 1 / 4, 1 / 2))
# -log2 of the target's probability: 1, 2, 2. -log2 of all four: 1 + 2 + 3 + 3 = 9, 8, 9.
NLL, SMOOTH = 5 * LN2, 26 * LN2
# Smoothing 0.3 gives 0.3 / 3 = 0.1 to each wrong symbol and 0.7 = 0.6 + 0.1 to the right one.
SMOOTHING = 0.3
CE = 0.6 * NLL + 0.1 * SMOOTH  # 5.6 ln 2
# 1/2 ln(1/2 : 1/4) + 1/4 ln(1/4 : 1/2) = 1/4 ln 2;   1/4 ln(1/4 : 5/8) + 3/4 ln(1/4 : 1/8) = ln 2 - 1/4 ln 5;   0
KL = (LN2 / 4, LN2 - LN5 / 4, 0.0)


class Table(FairseqEncoderDecoderModel):
    """Answers with fixed logits, row by row, whatever it reads; remembers what it was given."""

    def __init__(self, *rows):
        dictionary = make_dictionary(len(rows[0][0]))
        super().__init__(FairseqEncoder(dictionary), FairseqDecoder(dictionary))
        for side in (self.encoder, self.decoder):
            side.embed_tokens = nn.Embedding(len(dictionary), 2)
        self.logits = nn.Parameter(torch.tensor(rows).log())
        self.calls = []
        self.fault = None

    def forward(self, src_tokens, src_lengths, prev_output_tokens, **others):
        self.calls.append({"src_tokens": src_tokens, "prev_output_tokens": prev_output_tokens, **others})
        self.encoder.embed_tokens(src_tokens)
        if self.fault is not None:
            raise self.fault
        self.decoder.embed_tokens(prev_output_tokens)
        return self.logits[: len(src_tokens)], {}


def sample_of(target=TARGET, **others):
    target = torch.tensor([target])
    tokens = {"src_tokens": torch.tensor([[UNK, EOS]]), "src_lengths": torch.tensor([2])}
    return {
        "net_input": {**tokens, "prev_output_tokens": target.roll(1, 1), **others},
        "target": target,
        "ntokens": int(target.ne(PAD).sum()),
    }


@pytest.mark.parametrize("alpha", [3.0, 0.5])
def test_loss_is_that_computed_by_hand(alpha, make_criterion):
    model = Table(WHOLE, CUT)
    criterion = make_criterion(NAME, label_smoothing=SMOOTHING, simcut_alpha=alpha)
    loss, sample_size, log = criterion(model, sample_of())
    assert_close(loss, CE + alpha * sum(KL))
    assert_close(log["loss"], loss)
    assert_close(log["nll_loss"], NLL)
    assert_close(log["simcut_kl"], sum(KL))
    assert (sample_size, log["sample_size"], log["ntokens"], log["nsentences"]) == (3, 3, 3, 1)
    assert [len(call["src_tokens"]) for call in model.calls] == [2]
    assert not log["loss"].requires_grad


def test_gradient_flows_through_both_sides_of_the_divergence(make_criterion):
    model, alpha = Table(WHOLE, CUT), 3.0
    make_criterion(NAME, label_smoothing=SMOOTHING, simcut_alpha=alpha)(model, sample_of())[0].backward()
    for t, (p, q) in enumerate(zip(WHOLE, CUT, strict=True)):
        wanted = [0.7 if symbol == TARGET[t] else 0.1 for symbol in range(4)]
        whole = [p[i] - wanted[i] + alpha * p[i] * (math.log(p[i] / q[i]) - KL[t]) for i in range(4)]
        cut = [alpha * (q[i] - p[i]) for i in range(4)]
        assert_close(model.logits.grad[0, t], whole)
        assert_close(model.logits.grad[1, t], cut)
    # the first of these, spelt out; without the gradient of the left side it would be 0.5 - 0.7
    assert_close(model.logits.grad[0, 0, 0], 0.5 - 0.7 + 3 * 0.5 * (LN2 - LN2 / 4))
    assert_close(model.logits.grad[1, 0, 0], 3 * (0.25 - 0.5))


def test_padding_of_the_target_counts_in_neither_term(make_criterion):
    uneven, even = (0.7, 0.1, 0.1, 0.1), (0.25, 0.25, 0.25, 0.25)
    model = Table((*WHOLE, uneven, even), (*CUT, even, uneven))
    criterion = make_criterion(NAME, label_smoothing=SMOOTHING)
    loss, sample_size, log = criterion(model, sample_of((*TARGET, PAD, PAD)))
    loss.backward()
    assert_close(loss, CE + 3 * sum(KL))
    assert_close(log["simcut_kl"], sum(KL))
    assert sample_size == 3
    assert_close(model.logits.grad[:, 3:], torch.zeros(2, 2, 4), atol=0, rtol=0)


def test_ignored_prefix_counts_in_neither_term(make_criterion):
    criterion = make_criterion(NAME, label_smoothing=SMOOTHING, ignore_prefix_size=1)
    loss, sample_size, log = criterion(Table(WHOLE, CUT), sample_of())
    assert_close(log["nll_loss"], 4 * LN2)
    assert_close(log["simcut_kl"], KL[1])
    assert_close(loss, 0.6 * 4 * LN2 + 0.1 * 17 * LN2 + 3 * KL[1])
    assert sample_size == 3  # as in fairseq's criterion


def test_unreduced_loss_is_per_position(make_criterion):
    criterion = make_criterion(NAME, label_smoothing=SMOOTHING)
    loss, _, log = criterion(Table(WHOLE, CUT), sample_of(), reduce=False)
    ce = [(0.6 * nll + 0.1 * smooth) * LN2 for nll, smooth in ((1, 9), (2, 8), (2, 9))]
    assert_close(loss, [[ce[t] + 3 * KL[t]] for t in range(3)])
    assert_close(log["simcut_kl"], [[kl] for kl in KL])
    assert log["nll_loss"].shape == (3, 1)


def test_accuracy_is_that_of_whole_sentences(make_criterion):
    model = Table((CUT[0], (0.1, 0.1, 0.1, 0.7), WHOLE[2], CUT[0]), (WHOLE[0], CUT[1], (0.1, 0.1, 0.7, 0.1), CUT[0]))
    log = make_criterion(NAME, report_accuracy=True)(model, sample_of((*TARGET, PAD)))[2]
    assert (log["n_correct"], log["total"]) == (1, 3)


def test_sentences_are_the_denominator_with_sentence_avg(make_criterion):
    assert make_criterion(NAME, sentence_avg=True)(Table(WHOLE, CUT), sample_of())[1] == 1


def test_divergence_of_half_precision_logits_is_computed_in_float32(make_criterion):
    model = Table(WHOLE, CUT).bfloat16()
    loss, _, log = make_criterion(NAME, label_smoothing=0.0)(model, sample_of())
    p, q = model.logits.detach().double().log_softmax(-1)
    assert log["simcut_kl"].dtype == loss.dtype == torch.float32
    assert_close(log["simcut_kl"], (p.exp() * (p - q)).sum().float())
    loss.backward()
    assert model.logits.grad.isfinite().all()


# ---- which words are cut ---------------------------------------------------------------------------------------------


@pytest.fixture
def table():
    """A model to embed with; the embedding of padding is not zero, so that cutting it would show."""
    model = Table([[1.0] * 20])
    for embed_tokens in (model.encoder.embed_tokens, model.decoder.embed_tokens):
        nn.init.uniform_(embed_tokens.weight, 1.0, 2.0)
    return model


def many_words(rows=600, length=40):
    tokens = torch.randint(UNK, 20, (rows, length))
    tokens[:, 0], tokens[:, -2], tokens[:, -1] = EOS, PAD, 0
    return tokens


def test_words_of_every_second_row_are_cut_with_probability_p(table):
    p, tokens = 0.3, many_words()
    masks = []
    for side in (table.encoder, table.decoder):
        whole = side.embed_tokens(tokens)
        with cut_tokens(table, p):
            table.encoder.embed_tokens(tokens), table.decoder.embed_tokens(tokens)
            first, second = side.embed_tokens(tokens), side.embed_tokens(tokens)
        assert (first != second).any()  # drawn again for every call
        mask = (first == 0).all(-1)
        assert_close(first, whole.masked_fill(mask.unsqueeze(-1), 0.0), atol=0, rtol=0)
        assert not mask[0::2].any()
        assert not mask[tokens < UNK].any()
        masks.append(mask[1::2, 1:-2])
    for mask in masks:  # 300 rows of 37 words; bounds of 4.5 standard deviations, of which 337 are tried
        share = mask.float()
        assert abs(share.mean() - p) < 4.5 * math.sqrt(p * (1 - p) / share.numel())
        assert (share.mean(0) - p).abs().max() < 4.5 * math.sqrt(p * (1 - p) / 300)
        assert (share.mean(1) - p).abs().max() < 4.5 * math.sqrt(p * (1 - p) / 37)
        neighbours = (mask[:, 1:] & mask[:, :-1]).float()
        assert abs(neighbours.mean() - p**2) < 0.02
    assert abs((masks[0] & masks[1]).float().mean() - p**2) < 0.02


def test_cut_words_get_no_gradient_and_others_do(table):
    tokens = torch.tensor([[5, EOS], [6, EOS]])
    with cut_tokens(table, EVERY_WORD):
        (table.encoder.embed_tokens(tokens) + table.decoder.embed_tokens(tokens)).sum().backward()
    expected = torch.zeros(20, 2)
    expected[5], expected[EOS] = 1, 2
    assert_close(table.encoder.embed_tokens.weight.grad, expected)
    assert_close(table.decoder.embed_tokens.weight.grad, expected)


def test_shared_embedding_is_cut_once_on_either_side(table):
    table.decoder.embed_tokens = table.encoder.embed_tokens
    p, tokens = 0.3, many_words()
    with cut_tokens(table, p):
        assert len(table.encoder.embed_tokens._forward_hooks) == 1
        for side in (table.encoder, table.decoder):
            share = (side.embed_tokens(tokens)[1::2, 1:-2] == 0).all(-1).float().mean()
            assert abs(share - p) < 4.5 * math.sqrt(p * (1 - p) / 11100)


def hooks(model):
    return sum(len(module._forward_hooks) for module in model.modules())


def test_no_hook_is_left_behind_even_by_an_error(make_criterion):
    model, criterion = Table(WHOLE, CUT), make_criterion(NAME)
    criterion(model, sample_of())
    assert hooks(model) == 0
    model.fault = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        criterion(model, sample_of())
    assert hooks(model) == 0


def test_batch_is_doubled_for_the_model_only(make_criterion):
    model = Table(WHOLE, CUT, WHOLE, CUT)
    tokens = {"src_tokens": torch.tensor([[3, 2], [0, 2]]), "prev_output_tokens": torch.tensor([[2, 0, 3], [2, 3, 0]])}
    others = {"marks": torch.tensor([7, 8]), "scale": torch.tensor(2.0), "table": torch.zeros(3, 2), "mode": "a"}
    net_input = {**tokens, "src_lengths": torch.tensor([2, 2]), **others}
    sample = {"net_input": net_input, "target": torch.tensor([TARGET, TARGET]), "ntokens": 6}
    before = copy.deepcopy(sample)
    loss, _, _ = make_criterion(NAME, label_smoothing=SMOOTHING)(model, sample)
    assert_close(loss, 2 * (CE + 3 * sum(KL)))
    (call,) = model.calls
    assert call["src_tokens"].tolist() == [[3, 2], [3, 2], [0, 2], [0, 2]]
    assert call["prev_output_tokens"].tolist() == [[2, 0, 3], [2, 0, 3], [2, 3, 0], [2, 3, 0]]
    assert call["marks"].tolist() == [7, 7, 8, 8]
    assert (call["scale"].item(), call["table"].shape, call["mode"]) == (2.0, (3, 2), "a")
    assert str(sample) == str(before)


# ---- for every model -------------------------------------------------------------------------------------------------


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_same_gradients(actual, expected, why="", **tolerances):
    assert actual.keys() == expected.keys()
    assert len(actual) > 5
    for name, gradient in actual.items():
        assert_close(gradient, expected[name], why=f"{name} {why}", **tolerances)


def learn(criterion, model, sample, seed=1):
    """Loss, what is logged, and gradients."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    loss, _, log = criterion(model, sample)
    loss.backward()
    return loss.detach(), log, {name: gradient.clone() for name, gradient in gradients(model).items()}


def without_words(model):
    """Takes the embeddings of all but the marks from a model; the output layer stays."""
    with torch.no_grad():
        for embed_tokens in {model.encoder.embed_tokens, model.decoder.embed_tokens}:
            embed_tokens.weight[UNK:] = 0
    return model


def by_definition(model, model_of_cut, sample, smoothing, alpha):
    """CE(whole) + alpha * KL(whole || cut) from two separate passes, and the divergence alone."""
    target = sample["target"]
    p, q = (net(**sample["net_input"])[0].log_softmax(-1) for net in (model, model_of_cut))
    wanted = torch.full_like(p, smoothing / (p.shape[-1] - 1)).scatter(-1, target.unsqueeze(-1), 1 - smoothing)
    real = target.ne(PAD)
    kl = (p.exp() * (p - q)).sum(-1)[real].sum()
    return -(wanted * p).sum(-1)[real].sum() + alpha * kl, kl


def test_cut_sentence_keeps_only_positions_and_marks(family, make_model, make_sample, make_criterion):
    """With every word cut, the second pass is that of a model without word embeddings."""
    model, sample = make_model(family), make_sample()
    loss, log, _ = learn(make_criterion(NAME, simcut_p=EVERY_WORD), model, sample)
    expected, kl = by_definition(model, without_words(make_model(family)), sample, smoothing=0.1, alpha=3.0)
    assert kl > 0.01
    assert_close(log["simcut_kl"], kl, atol=1e-4, why="up to 1e-5 per token in two orders of summation")
    assert_close(loss, expected, atol=3e-4, why="three times that")


def test_shared_embeddings_stay_whole_in_the_output_layer(make_model, make_sample, make_criterion):
    shared, sample = make_model("muse_tiny", "--share-all-embeddings"), make_sample()
    assert shared.encoder.embed_tokens is shared.decoder.embed_tokens
    separate = make_model("muse_tiny")
    separate.load_state_dict(shared.state_dict())
    loss, _, _ = learn(make_criterion(NAME, simcut_p=EVERY_WORD), shared, sample)
    expected, _ = by_definition(shared, without_words(separate), sample, smoothing=0.1, alpha=3.0)
    assert_close(loss, expected, atol=3e-4, why="two orders of summation")


# not lstm, which takes no batch whose longest source is padded, nor fconv, whose convolutions read padding
@pytest.mark.parametrize("arch", ["muse_tiny", "muse_simple_tiny", "transformer_tiny", "lightconv_iwslt_de_en"])
def test_longer_padding_changes_neither_loss_nor_gradients(arch, make_model, make_sample, make_criterion):
    model, criterion = make_model(arch), make_criterion(NAME, simcut_p=EVERY_WORD)
    loss, _, expected = learn(criterion, model, make_sample())
    longer, _, actual = learn(criterion, model, make_sample(longer=4))
    assert_close(longer, loss, atol=1e-4, why="other matrix shapes")
    assert_same_gradients(actual, expected, atol=1e-4, why="other matrix shapes")


def test_evaluation_is_the_plain_criterion_to_the_bit(family, make_model, make_sample, make_criterion):
    model, sample = make_model(family).eval(), make_sample()
    seen = []
    model.register_forward_pre_hook(lambda _, inputs, named: seen.append(len(named["src_tokens"])), with_kwargs=True)
    results = [make_criterion(name, report_accuracy=True).eval()(model, sample) for name in (PLAIN, NAME)]
    assert str(results[0]) == str(results[1])
    assert_close(results[1][0], results[0][0], atol=0, rtol=0)
    assert seen == [4, 4]


def test_weight_zero_is_the_plain_criterion_to_the_bit(make_model, make_sample, make_criterion):
    model, sample = make_model("muse_tiny", "--dropout=0.3"), make_sample()
    loss, log, expected = learn(make_criterion(PLAIN), model, sample)
    actual_loss, actual_log, actual = learn(make_criterion(NAME, simcut_alpha=0.0), model, sample)
    assert_close(actual_loss, loss, atol=0, rtol=0)
    assert_same_gradients(actual, expected, atol=0, rtol=0)
    assert str(actual_log) == str(log)


@pytest.mark.parametrize("arch", ["muse_tiny", "muse_simple_tiny", "transformer_tiny"])
def test_without_noise_the_copies_agree_and_only_the_cross_entropy_is_left(
    arch, make_model, make_sample, make_criterion
):
    model, sample = make_model(arch), make_sample()
    loss, _, expected = learn(make_criterion(PLAIN), model, sample)
    actual_loss, log, actual = learn(make_criterion(NAME, simcut_p=0.0), model, sample)
    assert_close(log["simcut_kl"], 0.0, atol=0, rtol=0)
    assert_close(actual_loss, loss, atol=1e-4, why="other matrix shapes")
    assert_same_gradients(actual, expected, atol=1e-5)


def test_dropout_alone_makes_a_divergence(make_model, make_sample, make_criterion):
    model = make_model("muse_tiny", "--dropout=0.3")
    assert learn(make_criterion(NAME, simcut_p=0.0), model, make_sample())[1]["simcut_kl"] > 0.01


def test_halves_of_a_batch_add_up_to_it(make_model, make_sample, make_criterion):
    """What --update-freq relies on."""
    model, criterion, sample = make_model(), make_criterion(NAME, simcut_p=EVERY_WORD), make_sample()
    loss, _, expected = learn(criterion, model, sample)
    model.zero_grad(set_to_none=True)
    total = 0.0
    for rows in (slice(0, 2), slice(2, 4)):
        half = {name: tokens[rows] for name, tokens in sample["net_input"].items()}
        part, _, _ = criterion(model, {"net_input": half, "target": sample["target"][rows], "ntokens": 0})
        part.backward()
        total += part.detach()
    assert_close(total, loss, atol=1e-4, why="other matrix shapes")
    assert_same_gradients(gradients(model), expected, atol=1e-4, why="sums over the batch, up to 30")


@pytest.mark.parametrize("arch", ["muse_tiny", "transformer_tiny"])
def test_recomputed_activations_give_the_same_gradients(arch, make_model, make_sample, make_criterion):
    criterion, sample = make_criterion(NAME, simcut_p=0.4), make_sample()
    flags = ["--dropout=0.3", "--share-all-embeddings"]
    loss, log, expected = learn(criterion, make_model(arch, *flags), sample)
    again, _, actual = learn(criterion, make_model(arch, *flags, "--checkpoint-activations"), sample)
    assert log["simcut_kl"] > 0.01
    assert_close(again, loss, atol=0, rtol=0)
    assert_same_gradients(actual, expected)


@pytest.mark.parametrize("arch", ["muse_tiny", "muse_simple_tiny", "transformer_tiny"])
def test_a_few_tokens_at_a_time_are_as_good_as_all_scores(arch, make_model, make_sample, make_criterion, monkeypatch):
    """Losses of single positions take all scores, summed ones do not."""
    model, sample = make_model(arch, "--dropout=0.3", "--share-all-embeddings"), make_sample()
    criterion = make_criterion(NAME, simcut_p=0.4, report_accuracy=True, ignore_prefix_size=1)
    torch.manual_seed(1)
    losses, _, expected_log = criterion(model, sample, reduce=False)
    losses.sum().backward()
    expected = {name: gradient.clone() for name, gradient in gradients(model).items()}
    monkeypatch.setattr(model.decoder, "output_layer", lambda features: pytest.fail("it was called"))
    loss, log, actual = learn(criterion, model, sample)
    assert_close(loss, losses.sum().detach(), atol=0, rtol=1e-6)
    assert log["simcut_kl"] > 0.01
    for name in ("nll_loss", "simcut_kl"):
        assert_close(log[name], expected_log[name].sum(), atol=0, rtol=1e-5, why=name)
    assert {name: log[name] for name in ("n_correct", "total")} == {
        name: expected_log[name] for name in ("n_correct", "total")
    }
    assert_same_gradients(actual, expected, atol=2e-5, why="sums over the batch, up to 30")


def test_same_seed_gives_the_same_cuts_and_another_seed_others(make_model, make_sample, make_criterion):
    model, criterion, sample = make_model(), make_criterion(NAME, simcut_p=0.3), make_sample()
    losses = [learn(criterion, model, sample, seed)[0] for seed in (1, 1, 2)]
    assert_close(losses[0], losses[1], atol=0, rtol=0)
    assert losses[0] != losses[2]


def test_automatic_mixed_precision_is_close_to_float32(make_model, make_sample, make_criterion, device):
    model, criterion, sample = make_model(), make_criterion(NAME, simcut_p=EVERY_WORD), make_sample()
    loss, log, expected = learn(criterion, model, sample)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        mixed_loss, mixed_log, actual = learn(criterion, model, sample)
    assert mixed_log["simcut_kl"].dtype == torch.float32
    assert_close(mixed_loss, loss, rtol=0.02, why="bfloat16 has 8 bits")
    assert_close(mixed_log["simcut_kl"], log["simcut_kl"], rtol=0.1, why="a difference of such numbers")
    assert actual.keys() == expected.keys()
    assert all(gradient.isfinite().all() for gradient in actual.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_close_to_float32(dtype, make_model, make_sample, make_criterion):
    model, criterion, sample = make_model(), make_criterion(NAME, simcut_p=EVERY_WORD), make_sample()
    loss, log, _ = learn(criterion, model, sample)
    half_loss, half_log, actual = learn(criterion, model.to(dtype), sample)
    assert half_log["simcut_kl"].dtype == torch.float32
    assert_close(half_loss, loss, rtol=0.02, why="bfloat16 has 8 bits")
    assert_close(half_log["simcut_kl"], log["simcut_kl"], rtol=0.1, why="a difference of such numbers")
    assert all(gradient.isfinite().all() for gradient in actual.values())


def test_distributed_training_sees_one_forward_with_all_parameters(make_model, make_sample, make_criterion, tmp_path):
    model, criterion, sample = make_model(), make_criterion(NAME, simcut_p=0.4), make_sample()
    loss, _, expected = learn(criterion, model, sample)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        parallel = ModuleProxyWrapper(DistributedDataParallel(model))  # as fairseq wraps it
        for _ in range(2):  # an unused parameter is reported by the forward pass after it
            again, _, actual = learn(criterion, parallel, sample)
            assert_close(again, loss, atol=0, rtol=0)
            assert_same_gradients({name[len("module.module.") :]: g for name, g in actual.items()}, expected)
    finally:
        torch.distributed.destroy_process_group()
    assert hooks(model) == 0


# ---- flags, logs, errors ---------------------------------------------------------------------------------------------


def test_flags_have_the_defaults_of_the_authors_recipe():
    args = parse_training("data", "--arch=muse_tiny", "--max-tokens=1", "--criterion", NAME)
    assert (args.simcut_alpha, args.simcut_p) == (3.0, 0.05)
    assert (args.label_smoothing, args.report_accuracy, args.ignore_prefix_size) == (0.0, False, 0)


def test_divergence_is_logged_in_bits_per_token(make_criterion):
    criterion = make_criterion(NAME, label_smoothing=SMOOTHING)
    logs = [criterion(Table(WHOLE, CUT), sample_of())[2] for _ in range(2)]
    logs[1] = {name: value * 3 for name, value in logs[1].items()}  # as from three more workers
    with metrics.aggregate() as logged:
        criterion.reduce_metrics(logs)
    values = logged.get_smoothed_values()
    assert values["simcut_kl"] == pytest.approx(sum(KL) / 3 / LN2, abs=1e-3)
    assert values["nll_loss"] == pytest.approx(5 / 3, abs=1e-3)
    assert values["loss"] == pytest.approx((CE + 3 * sum(KL)) / 3 / LN2, abs=1e-3)
    assert values["ppl"] == pytest.approx(2 ** (5 / 3), abs=0.01)
    assert criterion.logging_outputs_can_be_summed()


def test_no_divergence_is_logged_where_none_was_computed(make_criterion):
    criterion = make_criterion(NAME)
    with metrics.aggregate() as logged:
        criterion.reduce_metrics([criterion(Table(WHOLE, CUT).eval(), sample_of())[2]])
    assert "simcut_kl" not in logged.get_smoothed_values()


@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf])
def test_bad_weight_is_refused(alpha, make_criterion):
    with pytest.raises(ValueError, match=rf"--simcut-alpha must be a number of at least 0, but got {alpha}; 3 is"):
        make_criterion(NAME, simcut_alpha=alpha)


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_bad_probability_is_refused(p, make_criterion):
    with pytest.raises(ValueError, match=rf"--simcut-p must be .* at least 0 and below 1, but got {p}; 0.05 is"):
        make_criterion(NAME, simcut_p=p)


def test_both_faults_are_reported_together(make_criterion):
    with pytest.raises(ValueError, match=r"--simcut-alpha .* got -1; .*--simcut-p .* got 2;"):
        make_criterion(NAME, simcut_alpha=-1, simcut_p=2)


def test_model_without_embed_tokens_is_refused(make_criterion):
    model = Table(WHOLE, CUT)
    del model.decoder.embed_tokens
    with pytest.raises(
        ValueError,
        match=rf"--criterion {NAME} .* must have decoder\.embed_tokens and decoder\.dictionary, but Table has not; "
        r"train it with --criterion label_smoothed_cross_entropy\.",
    ):
        make_criterion(NAME)(model, sample_of())
    assert hooks(model) == 0


def test_model_that_embeds_in_another_way_is_refused(make_criterion):
    model = Table(WHOLE, CUT)
    model.forward = lambda src_tokens, **_: (model.encoder.embed_tokens(src_tokens), {})
    with pytest.raises(ValueError, match=r"but Table did not call both; train it with --criterion label_smoothed"):
        make_criterion(NAME)(model, sample_of())


def test_adaptive_softmax_is_refused(make_model, make_sample, make_criterion):
    model = make_model("muse_tiny", "--adaptive-softmax-cutoff=8,14")
    with pytest.raises(NotImplementedError, match=r"whole distributions, .* drop --adaptive-softmax-cutoff, or use"):
        make_criterion(NAME)(model, make_sample())
    assert hooks(model) == 0
