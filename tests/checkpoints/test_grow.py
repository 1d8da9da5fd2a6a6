"""New tokens: transformers loads what was exported, with the old logits; its own resizing gives the same new rows."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ingot.checkpoints.checkpoint import load_model
from ingot.checkpoints.convert import export_model
from ingot.checkpoints.grow import grow_model, in_words
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import RecipeError
from tests.tokens.test_foreign import train, write

NEW = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
TEXT = "def f(x): return x  # the end of a tool call — über 12"


def foreign(folder: Path, *, tied: bool, spare: int = 0) -> Path:
    """A model as others publish it: tokens for turns only, and `spare` rows that no token has."""
    backend = train([inspect.getsource(pydoc)], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    write(folder, backend, template_text("chatml"), eos_token="<|im_end|>", pad_token="<|endoftext|>")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=backend.get_vocab_size() + spare,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=tied,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(30).add_(torch.randn(32))
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("spare", [0, 4, 50])
def test_exported_and_loaded_by_transformers(tmp_path: Path, tied: bool, spare: int) -> None:
    source = foreign(tmp_path / "model", tied=tied, spare=spare)
    grown = grow_model(source, tmp_path / "grown", tokens=["think", "tools", "turns"], template="ingot")
    export_model(grown, tmp_path / "exported")
    before, after = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("model", "exported"))
    old, new = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("model", "exported"))
    count = len(old)
    assert after.config.vocab_size == max(before.config.vocab_size, count + 6)
    assert after.config.tie_word_embeddings == tied
    assert (after.get_input_embeddings().weight is after.get_output_embeddings().weight) == tied
    assert [new(name).input_ids for name in NEW] == [[count + number] for number in range(6)]
    ids = torch.tensor([old(TEXT).input_ids])
    assert ids.tolist() == [new(TEXT).input_ids]
    with torch.no_grad():
        assert torch.equal(before(ids).logits[..., :count], after(ids).logits[..., :count])
    assert after.generation_config.eos_token_id == [2, 0]

    again = load_model(tmp_path / "exported")
    assert again.tokenizer is not None
    turn = [Message("user", "?"), Message("assistant", "4", "hm", [ToolCall("f", {"x": 1})])]
    tokens, _ = ChatFormat(again.tokenizer).conversation(turn)
    dicts = [message.to_dict() for message in turn]
    assert tokens == new.apply_chat_template(dicts, return_dict=False)
    assert {count, count + 1, count + 2, count + 3} <= set(tokens)


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_are_those_of_transformers(tmp_path: Path, tied: bool) -> None:
    """Both draw from N(mean, 1e-9 Cov): equal up to that noise, of the same size."""
    source = foreign(tmp_path / "model", tied=tied)
    peer = AutoModelForCausalLM.from_pretrained(source)
    count = peer.config.vocab_size
    peer.resize_token_embeddings(count + 2)
    ours = load_model(grow_model(source, tmp_path / "grown", tokens=["think"]))
    pairs = [(ours.embedding.weight, peer.get_input_embeddings().weight)]
    pairs += [] if tied else [(ours.output.weight, peer.get_output_embeddings().weight)]
    for mine, theirs in pairs:
        spread = theirs[:count].std(0)
        assert torch.equal(mine[:count], theirs[:count])
        for one in (mine, theirs):
            noise = (one[count:] - theirs[:count].mean(0)) / spread
            assert 1e-6 < noise.abs().max() < 2e-4  # 1e-9 ** 0.5 = 3.2e-5 of the spread
        assert not torch.equal(mine[count], mine[count + 1])


def test_a_row_can_begin_as_its_words(tmp_path: Path) -> None:
    source = foreign(tmp_path / "model", tied=True)
    grown = load_model(grow_model(source, tmp_path / "grown", tokens=["</tool_call>", "<think>"], start="words"))
    tokenizer = Tokenizer.load(source)
    assert [in_words(name) for name in ("</tool_call>", "<think>")] == ["end of tool call", "start of think"]
    weight, count = grown.embedding.weight, tokenizer.vocabulary_size
    for row, words in ((count, "end of tool call"), (count + 1, "start of think")):
        expected = weight[tokenizer.encode(words)].mean(0)
        torch.testing.assert_close(weight[row], expected, atol=1e-2, rtol=0)
        assert (weight[row] - weight[:count].mean(0)).abs().max() > 0.5


def test_a_template_alone_changes_no_weight(tmp_path: Path) -> None:
    """Tags in plain text: the tokenizer has no token for them, and the model is as it was."""
    source = foreign(tmp_path / "model", tied=True)
    options = {"assistant": "me"}
    changed = load_model(grow_model(source, tmp_path / "changed", template="hermes4", template_options=options))
    before = load_model(source)
    assert changed.tokenizer is not None and "<think>" not in changed.tokenizer.special
    assert torch.equal(changed.embedding.weight, before.embedding.weight)
    chat = ChatFormat(changed.tokenizer)
    turn = Message("assistant", "4", "two and two", [ToolCall("f", {"x": 1})])
    tokens, mask = chat.conversation([Message("user", "?"), turn])
    written = [token for token, one in zip(tokens, mask, strict=True) if one]
    assert chat.tokenizer.decode(tokens[: mask.index(1)]).endswith("<|im_start|>me\n")
    assert chat.tokenizer.decode(written).startswith("<think>\ntwo and two\n</think>\n4\n<tool_call>")
    assert chat.parse(written) == turn


def test_what_is_no_token_is_named(tmp_path: Path) -> None:
    source = foreign(tmp_path / "model", tied=True)
    with pytest.raises(RecipeError, match="'thinking' is neither a group of tokens nor a token"):
        grow_model(source, tmp_path / "grown", tokens=["thinking"])
