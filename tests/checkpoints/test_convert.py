"""Whole models through import and export: the same bits, what comes along, the memory it takes, and what a stop leaves."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import ingot
from ingot.checkpoints import tensors as pieces
from ingot.checkpoints.checkpoint import find_checkpoint, open_model, save_checkpoint, verify_checkpoint
from ingot.checkpoints.convert import export_model, import_model
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError, Interrupted
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress
from tests.checkpoints.families.harness import TINY, reference
from tests.checkpoints.gguf.making import make_gguf, make_reference
from tests.model.tiny import attention, config, random_model, random_tokens
from tests.slow import first_fast

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
MLA = {
    "kv_lora_rank": 16, "q_lora_rank": 14, "qk_rope_head_dim": 6, "qk_nope_head_dim": 8, "v_head_dim": 10,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 20,
    "first_k_dense_replace": 1, "num_key_value_heads": 4, "num_attention_heads": 4,
}  # fmt: skip
PEERS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**TINY),
    "gemma3": lambda: transformers.Gemma3TextConfig(**TINY, head_dim=8, sliding_window=5),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**TINY, **EXPERTS),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **TINY | {"intermediate_size": 20}, head_dim=8, num_local_experts=5, num_experts_per_tok=2
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(**TINY | MLA),
    "falcon_h1": lambda: transformers.FalconH1Config(**TINY, mamba_d_ssm=24, mamba_n_heads=3, mamba_d_state=8),
}


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def assert_same_tensors(one: Path, other: Path) -> None:
    left, right = read_tensors(one), read_tensors(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype, name
        assert torch.equal(tensor, right[name]), name


@pytest.mark.parametrize("name", first_fast(list(PEERS), 3))
def test_import_then_export_returns_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In shards, in pieces far smaller than a tensor; transformers loads the result and computes the same."""
    monkeypatch.setattr(pieces, "CHUNK", 1000)
    peer = reference(PEERS[name]())
    peer.save_pretrained(tmp_path / "theirs", max_shard_size="30KB")
    import_model(tmp_path / "theirs", tmp_path / "checkpoint")
    verify_checkpoint(tmp_path / "checkpoint")
    export_model(tmp_path / "checkpoint", tmp_path / "back", max_shard_bytes=30_000)
    assert_same_tensors(tmp_path / "theirs", tmp_path / "back")
    export_model(tmp_path / "theirs", tmp_path / "direct")
    assert [file.name for file in (tmp_path / "direct").glob("*.safetensors")] == ["model.safetensors"]
    assert_same_tensors(tmp_path / "theirs", tmp_path / "direct")
    again, found = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    assert {key: names for key, names in found.items() if names} == {}
    tokens = random_tokens(2, 9)
    with torch.no_grad():
        expected = peer(input_ids=tokens, use_cache=False).logits
        same = again.eval()(input_ids=tokens, use_cache=False).logits  # the experts' sums may have another order
        torch.testing.assert_close(same, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
        ours = ingot.load(tmp_path / "checkpoint").eval()(tokens)
        torch.testing.assert_close(ours, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))


def test_multi_token_modules_survive(tmp_path: Path) -> None:
    """The module behind the last layer, which transformers neither loads nor saves, and its copies of embedding and head."""
    peer = reference(PEERS["deepseek_v3"]())
    peer.save_pretrained(tmp_path / "theirs")
    values = json.loads((tmp_path / "theirs" / "config.json").read_text())
    depth, width = values["num_hidden_layers"], values["hidden_size"]
    tensors = read_tensors(tmp_path / "theirs")
    last = f"model.layers.{depth - 1}."
    module = {f"model.layers.{depth}.{n.removeprefix(last)}": t + 1 for n, t in tensors.items() if n.startswith(last)}
    for name, shape in {"enorm": (width,), "hnorm": (width,), "eh_proj": (width, 2 * width)}.items():
        module[f"model.layers.{depth}.{name}.weight"] = torch.randn(shape)
    module[f"model.layers.{depth}.shared_head.norm.weight"] = torch.randn(width)
    module[f"model.layers.{depth}.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    module[f"model.layers.{depth}.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors | module, tmp_path / "theirs" / "model.safetensors")
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({**values, "num_nextn_predict_layers": 1}))
    import_model(tmp_path / "theirs", tmp_path / "checkpoint")
    export_model(tmp_path / "checkpoint", tmp_path / "back")
    assert_same_tensors(tmp_path / "theirs", tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["num_nextn_predict_layers"] == 1


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_weights_keep_their_dtype_or_take_another(half: torch.dtype, tmp_path: Path) -> None:
    """A change rounds parameters; the balancing bias, a buffer, keeps float32."""
    peer = reference(PEERS["deepseek_v3"]())
    peer.save_pretrained(tmp_path / "theirs")
    original = read_tensors(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "checkpoint", dtype=half)
    export_model(tmp_path / "checkpoint", tmp_path / "back")
    export_model(tmp_path / "theirs", tmp_path / "direct", dtype=half)
    assert_same_tensors(tmp_path / "back", tmp_path / "direct")
    back = read_tensors(tmp_path / "back")
    biases = [name for name in original if name.endswith("e_score_correction_bias")]
    assert biases
    for name, tensor in original.items():
        assert torch.equal(back[name], tensor if name in biases else tensor.to(half)), name
    values = json.loads((tmp_path / "back" / "config.json").read_text())
    assert values["dtype"] == str(half).removeprefix("torch.")


def test_a_trained_checkpoint_and_its_stage_are_exported(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = random_model(config(attention(query_key_norm="head"), vocabulary_size=tokenizer.vocabulary_size))
    model.tokenizer = tokenizer
    save_checkpoint(tmp_path / "stage" / "checkpoint", model)
    sources: list[Transformer | Path] = [model, tmp_path / "stage", tmp_path / "stage" / "checkpoint"]
    for number, source in enumerate(sources):
        export_model(source, tmp_path / str(number))
        for file in (tmp_path / "0").iterdir():
            assert file.read_bytes() == (tmp_path / str(number) / file.name).read_bytes()


def test_a_stacked_weight_is_stored_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that any reader can take a few experts: also in a checkpoint that was saved from memory."""
    monkeypatch.setattr(pieces, "CHUNK", 5000)
    peer = reference(PEERS["qwen3_moe"]())
    peer.save_pretrained(tmp_path / "theirs")
    model = ingot.load(tmp_path / "theirs")
    save_checkpoint(tmp_path / "memory", model)
    import_model(tmp_path / "theirs", tmp_path / "stream")
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    for name in ("memory", "stream"):
        stored = FileSystemReader(tmp_path / name / "state").read_metadata().state_dict_metadata
        gate_up = stored["model.blocks.0.feed_forward.experts.gate_up"]
        assert len(gate_up.chunks) == EXPERTS["num_experts"]  # type: ignore[union-attr]
        again = ingot.load(tmp_path / name).state_dict()
        assert all(torch.equal(tensor, again[key]) for key, tensor in model.state_dict().items())


def test_a_gguf_file_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To both formats, in chunks of rows, with its tokenizer; the weights are those it was written from."""
    monkeypatch.setattr(pieces, "CHUNK", 1000)
    peer = make_reference("llama", tie_word_embeddings=False)
    words = ["<s>", "</s>", *(chr(letter) for letter in range(33, 126)), "xy"]
    vocabulary = {"tokens": words, "token_type": [3, 3, *[1] * 94], "merges": ["x y"]}
    parts = {"model": "gpt2", "pre": "gpt-2", "bos_token_id": 0, "eos_token_id": 1, **vocabulary}
    keys = {f"tokenizer.ggml.{name}": value for name, value in parts.items()} | {"tokenizer.chat_template": TEMPLATE}
    path = make_gguf(tmp_path / "model.gguf", peer, "llama", reordered=True, keys=keys)
    export_model(path, tmp_path / "direct")
    import_model(path, tmp_path / "checkpoint")
    export_model(tmp_path / "checkpoint", tmp_path / "back")
    expected = peer.state_dict()
    for folder in (tmp_path / "direct", tmp_path / "back"):
        tensors = read_tensors(folder)
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors.items())
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert (tokenizer.eos_token, tokenizer.chat_template) == ("</s>", TEMPLATE)
        assert tokenizer("cab").input_ids == [words.index(letter) for letter in "cab"]


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def foreign_folder(folder: Path) -> Path:
    """A model whose tokenizer is not one of ours, with every file that transformers writes, in a layout of its own."""
    from tokenizers import Tokenizer as Backend
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    backend = Backend(BPE())
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>", "<fill>"],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["some words and more words"] * 9, trainer)
    peer = reference(transformers.LlamaConfig(**TINY | {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 1}))
    peer.save_pretrained(folder)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<fill>"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=77, **names)
    theirs.chat_template = TEMPLATE
    theirs.save_pretrained(folder)
    generation = {"bos_token_id": 0, "eos_token_id": [1, 2], "temperature": 0.6, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "merges.txt").write_text("kept as it is")
    return folder


def test_tokenizer_template_and_generation_config_are_kept_byte_for_byte(tmp_path: Path) -> None:
    source = foreign_folder(tmp_path / "theirs")
    import_model(source, tmp_path / "checkpoint")
    export_model(tmp_path / "checkpoint", tmp_path / "back")
    export_model(ingot.load(source), tmp_path / "memory")
    kept = ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]
    for name in kept:
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()
        assert (tmp_path / "memory" / name).read_bytes() == (source / name).read_bytes()
    assert (tmp_path / "back" / "merges.txt").read_text() == "kept as it is"
    theirs, ours = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (source, tmp_path / "back"))
    text, messages = "some more wörds <s>", [{"role": "user", "content": "words"}]
    assert ours(text).input_ids == theirs(text).input_ids
    rendered = [one.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) for one in (ours, theirs)]
    assert rendered == ["<user>words<assistant>"] * 2
    values = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (values["bos_token_id"], values["eos_token_id"]) == (0, [1, 2])
    assert transformers.GenerationConfig.from_pretrained(tmp_path / "back").temperature == 0.6
    attached = ingot.load(tmp_path / "checkpoint").tokenizer
    assert attached is not None
    assert (attached.chat_template, attached.ends) == (TEMPLATE, (1, 2))


def test_token_ids_of_config_json_survive_without_a_generation_config(tmp_path: Path) -> None:
    source = foreign_folder(tmp_path / "theirs")
    (source / "generation_config.json").unlink()
    import_model(source, tmp_path / "checkpoint")
    export_model(tmp_path / "checkpoint", tmp_path / "back")
    assert transformers.GenerationConfig.from_pretrained(tmp_path / "back").eos_token_id == 1
    assert json.loads((tmp_path / "back" / "config.json").read_text())["bos_token_id"] == 0


def test_a_folder_that_exists_is_not_replaced_by_accident(tmp_path: Path) -> None:
    model = random_model(config())
    export_model(model, tmp_path / "model")
    with pytest.raises(ArtifactError, match="the folder exists\n  fix: name another one, or replace it with --force"):
        export_model(model, tmp_path / "model")
    with pytest.raises(ArtifactError, match="the folder exists"):
        import_model(tmp_path / "model", tmp_path / "model")
    export_model(model, tmp_path / "model", replace=True)
    import_model(tmp_path / "model", tmp_path / "model", replace=True)  # onto itself: read before it is replaced
    assert (tmp_path / "model" / "state").is_dir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for target in (tmp_path / "mine", tmp_path / "mine" / "letter.txt"):
        with pytest.raises(ArtifactError, match="this exists and is not the folder of a model"):
            export_model(model, target, replace=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match="the folder exists"):
        export_model(model, tmp_path / "empty")


def test_a_full_disk_is_found_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_model(random_model(config()), tmp_path / "model")
    size = open_model(tmp_path / "model").parameters.bytes
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=size))
    for write in (import_model, export_model):
        with pytest.raises(ArtifactError, match=r"the model needs 0\.0 GB of disk, 0\.0 GB are free\n  fix: make room"):
            write(tmp_path / "model", tmp_path / "new" / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=int(size * 1.02)))
    import_model(tmp_path / "model", tmp_path / "new" / "out")


class StopsAfter(Progress):
    """Asks for a stop at the third piece, and notes what it was told."""

    def __init__(self, stop: StopSignal) -> None:
        self.stop, self.calls, self.total = stop, list[int](), 0

    def start(self, total: int, unit: str = "step", done: int = 0) -> None:
        self.total = total

    def advance(self, done: int, **values: Any) -> None:
        self.calls.append(done)
        assert values["MB/s"] >= 0
        if len(self.calls) == 3:
            self.stop.request()


def test_a_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    export_model(random_model(config()), tmp_path / "model")
    for write in (import_model, export_model):
        stop = StopSignal()
        progress = StopsAfter(stop)
        with pytest.raises(Interrupted):
            write(tmp_path / "model", tmp_path / "out", progress=progress, stop=stop)
        assert (len(progress.calls), progress.total) == (3, 1)
        assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    export_model(random_model(config(width=240, vocabulary_size=2000)), tmp_path / "model")
    progress = StopsAfter(StopSignal())
    import_model(tmp_path / "model", tmp_path / "out", progress=progress)
    assert progress.calls[-1] == progress.total == 3
    assert progress.calls == sorted(progress.calls)


def big_folder(folder: Path, experts: int = 256, layers: int = 2, largest: int = 40_000_000) -> int:
    """A model of many experts in several shards, whose stacked weights are larger than a shard; the bytes of the largest."""
    width, inner, vocabulary = 256, 128, 500
    folder.mkdir(parents=True)
    values = transformers.Qwen3MoeConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        moe_intermediate_size=inner,
        num_experts=experts,
        num_experts_per_tok=4,
    ).to_dict()
    (folder / "config.json").write_text(json.dumps(values))
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, width)}
    shapes |= {"model.norm.weight": (width,), "lm_head.weight": (vocabulary, width)}
    for layer in range(layers):
        stem = f"model.layers.{layer}."
        shapes |= {
            f"{stem}self_attn.{name}_proj.weight": (size, width)
            for name, size in {"q": 256, "k": 128, "v": 128}.items()
        }
        shapes |= {f"{stem}self_attn.{name}_norm.weight": (64,) for name in "qk"}
        shapes |= {f"{stem}self_attn.o_proj.weight": (width, 256), f"{stem}mlp.gate.weight": (experts, width)}
        shapes |= {f"{stem}{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
        for expert in range(experts):
            shapes |= {f"{stem}mlp.experts.{expert}.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
            shapes[f"{stem}mlp.experts.{expert}.down_proj.weight"] = (width, inner)
    generator = torch.Generator().manual_seed(0)
    index, shard, number, sizes = {}, dict[str, torch.Tensor](), 0, [0]
    for name, shape in shapes.items():
        tensor = torch.rand(shape, generator=generator)
        if sizes[-1] + tensor.nbytes > largest:
            save_file(shard, folder / f"part-{number}.safetensors")
            shard, number = {}, number + 1
            sizes.append(0)
        shard[name] = tensor
        sizes[-1] += tensor.nbytes
        index[name] = f"part-{number}.safetensors"
    save_file(shard, folder / f"part-{number}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return max(sizes)


MEASURE = """
import resource, sys
from ingot.checkpoints.convert import export_model, import_model

small, source, checkpoint, back, largest = sys.argv[1:]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

import_model(small, small + "-checkpoint")  # everything that is imported only when it is used
export_model(small + "-checkpoint", small + "-back")
before = peak()
import_model(source, checkpoint)
imported = peak()
export_model(checkpoint, back, max_shard_bytes=int(largest))
print(imported - before, peak() - before)
"""


@pytest.mark.slow
def test_memory_stays_below_twice_the_largest_shard(tmp_path: Path) -> None:
    largest = big_folder(tmp_path / "theirs")
    big_folder(tmp_path / "small", experts=4, layers=1)
    arguments = [str(tmp_path / name) for name in ("small", "theirs", "checkpoint", "back")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments, str(largest)],
        capture_output=True,
        text=True,
        check=True,
    )
    imported, both = map(int, done.stdout.split())
    assert_same_tensors(tmp_path / "theirs", tmp_path / "back")
    stacked = 256 * 256 * 256 * 4
    assert stacked > largest  # one parameter is larger than a shard, and the whole model is five of them
    assert len(list((tmp_path / "back").glob("*.safetensors"))) >= 5
    assert imported < 2 * largest
    assert both < 2 * largest


@pytest.mark.parametrize("number", first_fast([signal.SIGKILL, signal.SIGINT]))
def test_a_killed_conversion_leaves_no_half_folder(number: signal.Signals, tmp_path: Path) -> None:
    """Killed while it writes. After SIGKILL the temporary folder is there, and the next try removes it."""
    big_folder(tmp_path / "theirs", experts=128, layers=1)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "ingot", "import", str(tmp_path / "theirs"), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = tmp_path / "out.partial"
    while process.poll() is None and not list(partial.glob("state/*.distcp")):
        time.sleep(0.002)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), errors
    assert not out.exists()
    assert partial.exists() == (number == signal.SIGKILL)
    if number == signal.SIGKILL:
        import_model(tmp_path / "theirs", out)
        verify_checkpoint(find_checkpoint(out))
        assert not partial.exists()
    else:
        assert errors == "stopping at the next step; Ctrl-C again stops at once\nstopped; nothing was written\n"
