"""Answers in the tokens of another model: the same bytes, marks by their meaning, and what both vocabularies have."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.experimental.gold.gold_trainer import ULDLoss
from trl.experimental.utils import encode_with_byte_offsets

from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.respell import Respeller, Respelt
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError
from tests.conftest import SHARED_DATA
from tests.tokens.test_foreign import LLAMA3, train

MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
ONE = ["the sum of three and four is seven, and 12 + 30 = 42.\n"] * 30
TWO = ["whose thoughts, therefore, thunder; assumptions of fourteen 4242 <think>then</think>\n"] * 30


def chat_of(texts: list[str], special: list[str], template: str, eos: str = "<|endoftext|>") -> ChatFormat:
    config = json.dumps({"eos_token": eos, "bos_token": eos}).encode()
    return ChatFormat(Tokenizer(train(texts, special), template, {"tokenizer_config.json": config}))


@pytest.fixture(scope="module")
def student() -> ChatFormat:
    return chat_of(ONE, [*MARKS, *TAGS, "<|only_here|>"], template_text("ingot"))


@pytest.fixture(scope="module")
def teacher() -> ChatFormat:
    """Other merges, and other ids for the same names."""
    return chat_of(TWO, ["<|other|>", *reversed([*MARKS, *TAGS])], template_text("ingot"))


def pairs(respeller: Respeller, tokens: list[int], found: Respelt) -> list[tuple[bytes, bytes]]:
    """What the groups spell on both sides."""
    mine, theirs = respeller.chat.tokenizer, respeller.other.tokenizer
    return [
        (
            mine.decode_bytes(tokens[each.start : each.stop]),
            theirs.decode_bytes(found.tokens[each.other_start : each.other_stop]),
        )
        for each in found.groups
    ]


def names(respeller: Respeller, tokens: list[int], found: Respelt) -> list[tuple[str, str]]:
    return [(mine.decode(), theirs.decode()) for mine, theirs in pairs(respeller, tokens, found)]


@settings(max_examples=60)
@given(text=st.text(max_size=60) | st.sampled_from([ONE[0], TWO[0], "thirty-four therefore 4242", "é ☃ 字"]))
def test_every_byte_of_a_text_is_in_a_group(student: ChatFormat, teacher: ChatFormat, text: str) -> None:
    respeller, tokens = Respeller(student, teacher), student.tokenizer.encode(text)
    found = respeller.respell(tokens)
    assert found.tokens == teacher.tokenizer.encode(text)
    spelt = pairs(respeller, tokens, found)
    assert all(mine == theirs for mine, theirs in spelt)
    assert b"".join(mine for mine, _ in spelt) == text.encode()


@settings(max_examples=60)
@given(data=st.data())
def test_any_tokens_that_a_model_may_sample_are_spelt(
    student: ChatFormat, teacher: ChatFormat, data: st.DataObject
) -> None:
    """Halves of characters, tokens in an order that no text has: every group has equal bytes, and none is lost."""
    ordinary = [id for id in range(student.tokenizer.vocabulary_size) if id not in student.tokenizer.special.values()]
    tokens = data.draw(st.lists(st.sampled_from(ordinary), max_size=20))
    respeller = Respeller(student, teacher)
    spelt = pairs(respeller, tokens, respeller.respell(tokens))
    assert all(mine == theirs for mine, theirs in spelt)
    assert b"".join(mine for mine, _ in spelt) == student.tokenizer.decode_bytes(tokens)


def answer(chat: ChatFormat, message: Message) -> list[int]:
    tokens, mask = chat.conversation([Message("user", "?"), message], thinking=message.thinking is not None)
    return [token for token, one in zip(tokens, mask, strict=True) if one]


def test_marks_are_matched_by_their_meaning(student: ChatFormat) -> None:
    """Tags as tokens or as text on either side, ends of turns by other names; of a tag as text every piece is in its group."""
    spoken = Message("assistant", "seven", "three, four")
    as_text = chat_of(TWO, MARKS, template_text("ingot"))
    llama = chat_of(TWO, ["<|begin|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], LLAMA3, "<|begin|>")
    for here, there, end in (
        (student, as_text, "<|im_end|>"),
        (as_text, student, "<|im_end|>"),
        (student, llama, "<|eot_id|>"),
    ):
        respeller, tokens = Respeller(here, there), answer(here, spoken)
        found = respeller.respell(tokens)
        spelt = names(respeller, tokens, found)
        assert ("<think>", "<think>") in spelt and ("</think>", "</think>") in spelt
        assert spelt[-1] == ("<|im_end|>", end)
        assert there.tokenizer.decode(found.tokens) == f"<think>three, four</think>seven{end}"
        inside = [id for name, id in there.tokenizer.special.items() if name in TAGS]
        assert [id for id in found.tokens if id in inside] == ([inside[0], inside[1]] if there is student else [])
    assert respeller.special[student.tokenizer.end_of_text] == [llama.tokenizer.end_of_text]


def test_what_the_other_cannot_spell_ends_the_comparison(student: ChatFormat, teacher: ChatFormat) -> None:
    respeller, encode = Respeller(student, teacher), student.tokenizer.encode
    tokens = [*encode("seven"), student.tokenizer.token("<|only_here|>"), *encode("four")]
    found = respeller.respell(tokens)
    assert "".join(mine for mine, _ in names(respeller, tokens, found)) == "seven"
    assert teacher.tokenizer.decode(found.tokens) == "seven"
    assert respeller.respell([student.tokenizer.token("<|only_here|>")]).groups == []


def test_a_trace_that_only_one_prompt_opened(student: ChatFormat, teacher: ChatFormat) -> None:
    """The tag is context of the side that lacks it, and is not compared."""
    respeller, tokens = Respeller(student, teacher), answer(student, Message("assistant", "x", "y"))
    think, end = (teacher.tokenizer.token(name) for name in ("<think>", "</think>"))
    found = respeller.respell(
        tokens, other_opened=True
    )  # the student wrote <think>, the teacher's prompt has it already
    assert found.tokens[0] != think and found.groups[0].start == 1 and found.groups[0].other_start == 0
    found = respeller.respell(tokens[1:], opened=True)
    assert found.tokens[0] == think and found.groups[0].start == 0 and found.groups[0].other_start == 1
    direct = answer(student, Message("assistant", "x"))
    found = respeller.respell(
        direct, other_opened=True
    )  # it answers at once, in a trace that the teacher's prompt opened
    assert found.tokens[0] == end and names(respeller, direct, found)[0] == ("x", "x")
    found = respeller.respell(tokens, opened=True, other_opened=True)
    assert found.tokens[0] == think and found.groups[0].start == found.groups[0].other_start == 0


def test_a_mark_inside_a_token_is_not_compared_where_it_must_be_left_out(teacher: ChatFormat) -> None:
    """`<think>` is text here, and one token reaches over its end: there is no place from which both sides could be read."""
    backend = train(ONE, MARKS)
    backend.add_tokens(["<think>then"])
    here = ChatFormat(Tokenizer(backend, template_text("ingot"), teacher.tokenizer.files))
    tokens = [here.tokenizer.backend.get_vocab()["<think>then"], *here.tokenizer.encode("seven")]
    assert Respeller(here, teacher).respell(tokens, other_opened=True).groups == []
    assert Respeller(here, teacher).respell(tokens).groups[0].stop == 1


def test_channels_have_no_counterpart(student: ChatFormat) -> None:
    special = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|constrain|>", *MARKS]
    harmony = chat_of(ONE, special, template_text("harmony"))
    with pytest.raises(ArtifactError, match="only one of the two chat templates writes channels"):
        Respeller(student, harmony)


def test_shared_tokens_are_pairs_of_equal_names(student: ChatFormat, teacher: ChatFormat) -> None:
    """For two byte-level tokenizers these are the equal strings of their vocabularies, which TRL takes."""
    found = Respeller(student, teacher).shared()
    own, other = (each.tokenizer.backend.get_vocab(with_added_tokens=True) for each in (student, teacher))
    assert dict(found) == {id: other[name] for name, id in own.items() if name in other}
    assert len({id for id, _ in found}) == len({id for _, id in found}) == len(found)


def test_ends_of_turns_are_shared_under_other_names(student: ChatFormat) -> None:
    llama = chat_of(TWO, ["<|begin|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], LLAMA3, "<|begin|>")
    found = dict(Respeller(student, llama).shared())
    assert found[student.turn_end] == llama.turn_end
    assert found[student.tokenizer.end_of_text] == llama.tokenizer.end_of_text
    assert student.tokenizer.token("<think>") not in found  # it is five tokens there
    short = chat_of(
        TWO, ["<|im_start|>", "<|im_end|>"], template_text("chatml"), "<|im_end|>"
    )  # one end of turns and texts
    found = dict(Respeller(student, short).shared())
    assert found[student.turn_end] == short.turn_end == short.tokenizer.end_of_text
    assert student.tokenizer.end_of_text not in found


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[ChatFormat, ChatFormat]:
    """SmolLM2, and cl100k by transformers' converter with the marks of ChatML."""
    folder = SHARED_DATA / "tokenizers"
    if not (folder / "cl100k_base.tiktoken.gz").is_file():
        pytest.skip(f"no published tokenizers in {folder}")
    pytest.importorskip("tiktoken")
    from transformers.convert_slow_tokenizer import TikTokenConverter

    template = (folder / "smollm2_chat_template.jinja").read_bytes()
    config = json.dumps({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}).encode()
    files = {"tokenizer.json": gzip.decompress((folder / "smollm2_tokenizer.json.gz").read_bytes())}
    smollm2 = Tokenizer.from_files(
        files | {"chat_template.jinja": template, "tokenizer_config.json": config}, "smollm2"
    )
    ranks = tmp_path_factory.mktemp("cl100k") / "cl100k.tiktoken"
    ranks.write_bytes(gzip.decompress((folder / "cl100k_base.tiktoken.gz").read_bytes()))
    backend = TikTokenConverter(str(ranks), extra_special_tokens=[*MARKS, "<think>", "</think>"]).converted()
    cl100k = Tokenizer(backend, template_text("ingot"), {"tokenizer_config.json": config})
    return ChatFormat(smollm2), ChatFormat(cl100k)


def test_published_tokenizers(published: tuple[ChatFormat, ChatFormat]) -> None:
    """SmolLM2 cuts numbers into digits, cl100k into threes. Groups against TRL's offsets and TRL's walk."""
    smollm2, cl100k = published
    texts = [
        "The sum is 123456 + 789 = 124245.",
        "def f(x):\n        return x ** 2  # naïve, 日本語 🙂\n",
        "  a\t\n\n b",
    ]
    for here, there in (published, published[::-1]):
        respeller = Respeller(here, there)
        for text in texts:
            sides = [encode_with_byte_offsets(each.tokenizer.backend, [text])[0] for each in (here, there)]
            found = respeller.respell(sides[0][0])
            assert found.tokens == sides[1][0]
            peer = ULDLoss._align_by_byte_offsets(sides[0][1], sides[1][1])
            ours = [
                (list(range(one.start, one.stop)), list(range(one.other_start, one.other_stop))) for one in found.groups
            ]
            assert ours == list(zip(*peer, strict=True))
    spoken = answer(cl100k, Message("assistant", "It is 1234.", "12 * 100 + 34"))
    respeller = Respeller(cl100k, smollm2)
    found = respeller.respell(spoken)
    assert smollm2.tokenizer.decode(found.tokens) == "<think>12 * 100 + 34</think>It is 1234.<|im_end|>"
    spelt = names(respeller, spoken, found)
    assert ("123", "123") in spelt and ("<think>", "<think>") in spelt and spelt[-1] == ("<|im_end|>", "<|im_end|>")
    assert 30_000 < len(respeller.shared()) < 49_152
