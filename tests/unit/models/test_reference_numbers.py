"""MUSE against numbers that the paper authors' own program computed (``tests/fixtures/muse_reference``)."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.sequence_generator import SequenceGenerator
from support.helpers import assert_close
from support.reference import ATTENTION_ATOL, GRADIENT_RTOL, LOSS_RTOL, NAMES, SCORE_ATOL, STATE_ATOL, load_reference

PAD = 1


@pytest.fixture(params=NAMES)
def reference(request):
    return load_reference(request.param)


@pytest.fixture(params=["padded", "nopad"])
def kind(request):
    return request.param


def test_all_five_reference_files_are_here():
    assert len(NAMES) == 5


@torch.no_grad()
def test_encoder_states_agree(reference, kind):
    model, batch = reference.converted_model(), reference.batch(kind)
    out = model.encoder(batch["src_tokens"], batch["src_lengths"], return_all_hiddens=True)
    states = [state.transpose(0, 1) for state in out["encoder_states"]]
    real = _real_source(reference, batch)
    assert_close(states[0][real], reference.tensor(f"{kind}/enc_input")[real], atol=STATE_ATOL)
    for number, expected in enumerate(reference.tensor(f"{kind}/enc_layers")):
        assert_close(states[number + 1][real], expected[real], atol=STATE_ATOL)
    final = out["encoder_out"][0].transpose(0, 1)
    assert_close(final[real], reference.tensor(f"{kind}/enc_out")[real], atol=STATE_ATOL)


@torch.no_grad()
def test_logits_decoder_states_and_attention_agree(reference, kind):
    model, batch = reference.converted_model(), reference.batch(kind)
    logits, extra = model(batch["src_tokens"], batch["src_lengths"], batch["prev_output_tokens"])
    real = batch["prev_output_tokens"].ne(PAD)
    assert_close(logits[real], reference.tensor(f"{kind}/logits")[real], atol=STATE_ATOL)
    for state, expected in zip(extra["inner_states"], reference.tensor(f"{kind}/dec_layers"), strict=True):
        assert_close(state.transpose(0, 1)[real], expected[real], atol=STATE_ATOL)
    assert_close(extra["attn"][0][real], reference.tensor(f"{kind}/attn")[real], atol=ATTENTION_ATOL)


@torch.no_grad()
def test_step_by_step_logits_agree(reference, kind):
    model, batch = reference.converted_model(), reference.batch(kind)
    encoder_out = model.encoder(batch["src_tokens"], batch["src_lengths"])
    tokens, state, steps = batch["prev_output_tokens"], {}, []
    for length in range(1, tokens.shape[1] + 1):
        steps.append(model.decoder(tokens[:, :length], encoder_out, incremental_state=state)[0])
    real = tokens.ne(PAD)
    assert_close(torch.cat(steps, dim=1)[real], reference.tensor(f"{kind}/incremental_logits")[real], atol=STATE_ATOL)


@torch.no_grad()
def test_a_sentence_alone_gives_the_authors_numbers(reference):
    model, batch = reference.converted_model(), reference.batch("padded")
    for row in range(len(batch["src_tokens"])):
        source, previous = batch["src_tokens"][row], batch["prev_output_tokens"][row]
        source_real, real = source.ne(PAD), previous.ne(PAD)
        source, previous = source[source_real][None], previous[real][None]
        logits, extra = model(source, torch.tensor([source.shape[1]]), previous)
        assert_close(logits[0], reference.tensor("alone/logits")[row][real], atol=STATE_ATOL)
        attention = reference.tensor("alone/attn")[row][real][:, source_real]
        assert_close(extra["attn"][0][0], attention, atol=ATTENTION_ATOL)


@torch.no_grad()
@pytest.mark.parametrize("name", ["b_muse_shared_embeddings", "d_single_kernel7"])
def test_masked_padding_in_a_batch_equals_the_authors_numbers_without_padding(name):
    reference = load_reference(name)
    model, batch = reference.converted_model(), reference.batch("padded")
    for module in model.encoder.modules():
        if hasattr(module, "mask_padding"):
            module.mask_padding = True
    logits, _ = model(batch["src_tokens"], batch["src_lengths"], batch["prev_output_tokens"])
    real = batch["prev_output_tokens"].ne(PAD)
    assert_close(logits[real], reference.tensor("alone/logits")[real], atol=STATE_ATOL)


def test_loss_and_gradients_agree(reference, kind):
    model, batch = reference.converted_model().train(), reference.batch(kind)
    _switch_off_dropout(model)
    task = reference.task()
    # The authors' fairseq spread the smoothing over V symbols, today's over the V - 1 others: the same loss at
    # epsilon * (V - 1) / V.
    symbols = reference.config["target_vocab"]
    smoothing = reference.config["label_smoothing"] * (symbols - 1) / symbols
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=smoothing)
    sample = {
        "net_input": {k: batch[k] for k in ("src_tokens", "src_lengths", "prev_output_tokens")},
        "target": batch["target"],
        "ntokens": int(batch["target"].ne(PAD).sum()),
    }
    loss, _, log = criterion(model, sample)
    assert_close(loss.detach(), reference.tensor(f"{kind}/loss"), rtol=LOSS_RTOL, atol=0)
    assert_close(torch.as_tensor(log["nll_loss"]), reference.tensor(f"{kind}/nll_loss"), rtol=LOSS_RTOL, atol=0)
    loss.backward()

    gradients = _authors_gradients(model, reference)
    compared = 0
    for name, norm in zip(reference.parameter_names, reference.tensor(f"{kind}/grad_l2"), strict=True):
        if torch.isnan(norm):
            assert name in reference.config["parameters_without_gradient"]
            continue
        if name not in gradients:  # the gate of a single kernel does nothing and has no counterpart here
            assert name.endswith("dynamic_gate_para")
            assert norm.abs() < 1e-6
            continue
        actual, expected = gradients[name], reference.arrays.get(f"{kind}/grad/{name}")
        assert_close(actual.norm(), norm, rtol=GRADIENT_RTOL, atol=1e-6)
        if expected is not None:
            largest = float(abs(expected).max())
            assert_close(actual, torch.from_numpy(expected), atol=max(GRADIENT_RTOL * largest, 1e-6), rtol=0)
            compared += 1
    published = [name for name in reference.arrays if name.startswith(f"{kind}/grad/")]
    assert compared == len(published) - sum(name[len(f"{kind}/grad/") :] not in gradients for name in published) >= 7
    assert all(p.grad is not None for p in model.parameters()), "every parameter must receive a gradient"


@pytest.mark.parametrize("length_penalty", [1.0, 0.6])
@pytest.mark.parametrize("kind", ["padded", "nopad", "alone"])
def test_beam_search_finds_the_authors_hypotheses(reference, kind, length_penalty):
    model, search = reference.converted_model(), reference.config["search"]
    generator = SequenceGenerator(
        [model],
        reference.task().target_dictionary,
        beam_size=search["beam_size"],
        max_len_a=search["max_len_a"],
        max_len_b=search["max_len_b"],
        min_len=search["min_len"],
        len_penalty=length_penalty,
    )
    batch = reference.batch("padded" if kind == "alone" else kind)
    hypotheses = []
    if kind == "alone":
        for tokens in batch["src_tokens"]:
            tokens = tokens[tokens.ne(PAD)][None]
            hypotheses += _generate(generator, tokens, torch.tensor([tokens.shape[1]]))
    else:
        hypotheses = _generate(generator, batch["src_tokens"], batch["src_lengths"])
    prefix = f"{kind}/beam/lenpen{length_penalty}"
    for row, ranked in enumerate(hypotheses):
        for rank, hypothesis in enumerate(ranked):
            length = int(reference.tensor(f"{prefix}/lengths")[row, rank])
            expected = {k: reference.tensor(f"{prefix}/{k}")[row, rank] for k in ("tokens", "positional_scores")}
            assert hypothesis["tokens"].tolist() == expected["tokens"][:length].tolist()
            assert_close(hypothesis["score"], reference.tensor(f"{prefix}/scores")[row, rank], atol=SCORE_ATOL)
            assert_close(hypothesis["positional_scores"], expected["positional_scores"][:length], atol=SCORE_ATOL)
        assert len(ranked) == search["beam_size"]


def _real_source(reference, batch):
    """Where encoder states are comparable: everywhere where padding leaks as published, else at real tokens."""
    leaky = reference.config["model"]["attn_dynamic_type"] and not reference.config["model"]["dynamic_padding"]
    real = batch["src_tokens"].ne(PAD)
    return torch.ones_like(real) if leaky else real


def _switch_off_dropout(model):
    for module in model.modules():
        for name in ("weight_dropout", "branch_dropout", "input_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def _generate(generator, tokens, lengths):
    return generator.generate([], {"net_input": {"src_tokens": tokens, "src_lengths": lengths}})


def _authors_gradients(model, reference):
    """Gradients under the authors' names: our fused parameters cut back into their matrices."""
    from muse_plugin.checkpoints.authors_format import convert_checkpoint

    numbered = reference.authors_checkpoint()
    # Number every entry of the authors' parameters, convert, and read off where each entry went.
    positions, start = {}, 1
    for name, tensor in numbered["model"].items():
        if name in reference.parameter_names:
            positions[name] = torch.arange(start, start + tensor.numel(), dtype=torch.float64).view(tensor.shape)
            start += tensor.numel()
            numbered["model"][name] = positions[name]
    for name, source in reference.config["tied"].items():
        if name in numbered["model"]:
            numbered["model"][name] = positions[source]
    where = convert_checkpoint(numbered)["model"]
    flat = torch.full((start,), float("nan"))
    for name, parameter in model.named_parameters():
        index = where[name].long()
        flat[index[index > 0]] = parameter.grad[index > 0]
    found = {name: flat[index.long()] for name, index in positions.items()}
    return {name: grad for name, grad in found.items() if not grad.isnan().any()}
