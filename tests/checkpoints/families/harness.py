"""Every proof that a Hugging Face model type gets, for one tiny random model at a time.

`check(hf_config, …)` builds the transformers model with random weights in which nothing is special (gains, biases, sinks and
balancing biases too), reads its state dict and configuration into Ingot, and compares

* logits, in float32 and relative to their size;
* the gradient of every parameter of a random linear function of the logits;
* decoding with a cache, prefill in pieces and rows of different lengths, against the full pass;
* packed documents against each document alone;
* the round trip: tensors written back are bit-identical and have exactly the reference's names, and the configuration that is
  written builds the same model in transformers.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.table import find_family, read_config, write_config
from ingot.checkpoints.huggingface import check_names
from ingot.checkpoints.tensors import MemoryTensors, fill
from ingot.checkpoints.translate import to_parameters
from ingot.model.config import ModelConfig
from ingot.model.mixers.cache import CacheShape
from ingot.model.transformer import Transformer
from tests.checkpoints.whole import written_tensors

LOGITS, GRADIENTS = 2e-5, 2e-4  # relative tolerances; the bar of the issue is 2e-4 for logits
TINY: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,  # its embedding would get no gradient
    "rms_norm_eps": 0.03,  # so large that a norm which takes another one is seen
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}
YARN = {  # the ramp begins and ends among the few channels of a tiny head
    "rope_type": "yarn",
    "rope_theta": 20.0,
    "factor": 4.0,
    "original_max_position_embeddings": 60,
    "beta_fast": 8.0,
    "beta_slow": 1.5,
}


def reference(config: PretrainedConfig, *, seed: int = 0, spread: float = 0.15) -> PreTrainedModel:
    """The transformers model with random weights, computing eagerly in float32."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            near_one = parameter.dim() == 1 and "norm" in name and "bias" not in name
            parameter.normal_(0.0, spread, generator=generator)
            if near_one:
                parameter.add_(1.0)
        for name, buffer in sorted(model.named_buffers()):
            if "correction_bias" in name or "expert_bias" in name:
                buffer.normal_(0.0, 0.1, generator=generator)
    return model


def saved(model: PreTrainedModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and the tensors exactly as `save_pretrained` writes them."""
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        values = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        tensors: dict[str, Tensor] = {}
        for file in sorted(Path(folder).glob("*.safetensors")):
            tensors |= load_file(file)
    canonical = find_family(values["model_type"], "the test").canonical
    return values, {canonical(name): tensor for name, tensor in tensors.items()}


def imported(values: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Family, Layout, Transformer]:
    """Ingot's model of a saved one."""
    family, config = read_config(values, "config.json", tensors.keys())
    model = Transformer(config).eval()
    layout = family.layout(config)
    check_names(tensors.keys(), layout, family, "the test")
    state = model.state_dict(keep_vars=True)
    fill(state, to_parameters(MemoryTensors(tensors), layout, state, "the test"))
    return family, layout, model


def relative(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference over the largest value."""
    ours, theirs = ours.detach(), theirs.detach()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12))


def check(
    config: PretrainedConfig,
    *,
    seed: int = 0,
    rows: int = 2,
    length: int = 23,
    logits: float = LOGITS,
    gradients: float = GRADIENTS,
    decode: bool = True,
    packed: bool = True,
) -> ModelConfig:
    """All proofs for one configuration; returns Ingot's configuration."""
    peer = reference(config, seed=seed)
    values, tensors = saved(peer)
    _, layout, model = imported(values, tensors)
    size = model.config.vocabulary_size
    assert size is not None
    tokens = torch.randint(0, size, (rows, length), generator=torch.Generator().manual_seed(seed + 2))

    theirs = peer(input_ids=tokens, use_cache=False).logits.float()
    ours = model(tokens)
    assert relative(ours, theirs) < logits, f"logits differ by {relative(ours, theirs):.2e}"

    direction = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(seed + 3))
    (ours * direction).sum().backward()
    (theirs * direction).sum().backward()
    _check_gradients(peer, model, layout, gradients)
    with torch.no_grad():
        if decode:
            _check_decode(model, tokens, ours.detach(), logits)
        if packed:
            _check_packed(model, tokens, logits)
        _check_round_trip(model, layout, tensors, theirs.detach(), tokens)
    return model.config


def _check_gradients(peer: PreTrainedModel, model: Transformer, layout: Layout, tolerance: float) -> None:
    """Gradients travel through the same layout as weights: ours are written as tensors and compared with theirs."""
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        for buffer in peer.buffers():
            buffer.zero_()
    _, expected = saved(peer)
    found = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[name] = parameter.grad
    largest = max(float(tensor.abs().max()) for tensor in expected.values())
    for name, tensor in written_tensors(layout, found).items():
        if layout[name].computed is not None:
            continue
        ours, theirs = tensor.float(), expected[name].float()
        scale = max(
            float(theirs.abs().max()), 1e-3 * largest
        )  # a gradient that is rounding noise has no relative error
        difference = float((ours - theirs).abs().max()) / scale
        assert difference < tolerance, f"the gradient of {name} differs by {difference:.2e}"


def _check_decode(model: Transformer, tokens: Tensor, full: Tensor, tolerance: float) -> None:
    """Prefill of unequal lengths with padding, a second piece, then single tokens, in other slots than rows."""
    rows, length = tokens.shape
    caches = model.make_caches(CacheShape(slots=rows + 1, length=length + 2))
    slots = torch.arange(rows, 0, -1)
    lengths = torch.tensor([max(1, length - 7 - 3 * row) for row in range(rows)])
    done = torch.zeros(rows, dtype=torch.int64)
    got = torch.zeros_like(full)

    def advance(piece: Tensor) -> None:
        width = int(piece.max())
        index = (done[:, None] + torch.arange(width)).clamp(max=length - 1)
        positions = done[:, None] + torch.arange(width)
        real = torch.arange(width) < piece[:, None]
        chosen = tokens.gather(1, index).masked_fill(~real, 0)
        positions = positions.clamp(max=length + 1)
        reach = int(positions.max()) + 1
        states = model.hidden(chosen, positions, caches=caches, slots=slots, lengths=piece, reach=reach)
        logits = model.head(states)
        for row in range(rows):
            got[row, done[row] : done[row] + piece[row]] = logits[row, : piece[row]]
        done.add_(piece)

    advance(lengths)
    advance(torch.full((rows,), 3))
    while int(done.min()) < length:
        advance((done < length).long()) if int(done.max()) < length else advance_rows(
            model, tokens, done, got, caches, slots
        )
    worst = relative(got, full)
    assert worst < tolerance, f"decoding with a cache differs by {worst:.2e}"


def advance_rows(model: Transformer, tokens: Tensor, done: Tensor, got: Tensor, caches: Any, slots: Tensor) -> None:
    """One token for the rows that are not finished."""
    open_rows = (done < tokens.shape[1]).nonzero().flatten()
    positions = done[open_rows, None]
    chosen = tokens[open_rows].gather(1, positions)
    states = model.hidden(chosen, positions, caches=caches, slots=slots[open_rows], reach=int(positions.max()) + 1)
    logits = model.head(states)
    for index, row in enumerate(open_rows.tolist()):
        got[row, done[row]] = logits[index, 0]
    done[open_rows] += 1


def _check_packed(model: Transformer, tokens: Tensor, tolerance: float) -> None:
    """Documents of uneven length in one row, padding at the end, against each document alone."""
    flat = tokens.flatten()
    sizes, start, documents, positions = [7, 1, 12, 2, 9], 0, [], []
    sizes = sizes if sum(sizes) <= len(flat) else [5, 1, len(flat) - 8]
    for number, size in enumerate(sizes):
        documents += [number] * size
        positions += list(range(size))
    padding = 4
    row = torch.cat((flat[: sum(sizes)], torch.zeros(padding, dtype=torch.int64)))[None]
    numbers = torch.tensor(documents + [-1] * padding)[None]
    places = torch.tensor(positions + [0] * padding)[None]
    packed = model(row, places, numbers)[0]
    for size in sizes:
        alone = model(row[:, start : start + size])[0]
        worst = relative(packed[start : start + size], alone)
        assert worst < tolerance, f"a packed document of {size} tokens differs from itself alone by {worst:.2e}"
        start += size


def _check_round_trip(
    model: Transformer, layout: Layout, tensors: dict[str, Tensor], logits: Tensor, tokens: Tensor
) -> None:
    written = written_tensors(layout, model.state_dict(keep_vars=True))
    for name, tensor in written.items():
        given, exact = tensors[name], layout[name].computed is None
        if exact or tensor.shape == given.shape:  # the size of a computed tensor may be another
            equal = torch.equal(tensor, given) if exact else torch.allclose(tensor, given, rtol=1e-6, atol=0)
            assert equal, f"{name} is not the same after a round trip"
    _, values = write_config(model.config)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(values), encoding="utf-8")
        config = AutoConfig.from_pretrained(folder)
        config._attn_implementation = config._experts_implementation = "eager"
        from safetensors.torch import save_file

        save_file(written, Path(folder) / "model.safetensors")
        again, info = AutoModelForCausalLM.from_pretrained(folder, config=config, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    back = again.eval()(input_ids=tokens, use_cache=False).logits
    assert relative(back, logits) < 1e-6, f"the written model differs by {relative(back, logits):.2e}"
