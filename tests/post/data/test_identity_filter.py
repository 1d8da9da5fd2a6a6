"""The filter `identity` beside open-instruct's: 43 sentences with the verdicts of its two scripts, run over them on 2026-11-17.

Of allenai/open-instruct at 07e39a7, scripts/data/filtering_and_updates: filter_dataset_by_keywords.py, filter_cutoff_date.py
"""

from __future__ import annotations

from tests.post.data.test_filters import reason, talk

BOTH = [
    "I am ChatGPT, a large language model trained by OpenAI.",
    "I'm Claude, an AI assistant made by Anthropic.",
    "I'm DeepSeek, here to help.",
    "I am Qwen, created by Alibaba Cloud.",
    "I am called Gemini.",
    "i am claude, nice to meet you.",
    "As a language model, I was made by OpenAI to help people.",
    "As an AI language model developed by OpenAI, I cannot do that.",
    "As an AI developed by Anthropic, I have no opinions.",
    "As an AI model, I follow the rules of Mistral AI.",
    "I am a language model of Cohere.",
    "I am an AI model made by Perplexity.",
    "I was trained by researchers at OpenAI.",
    "I was developed by a team at Meta AI.",
    "That is against OpenAI's policies.",
    "That would violate Anthropic's guidelines.",
    "OpenAI's policy does not allow it.",
    "It is against Claude policy to answer.",
    "As of my last update in April 2023, it was open.",
    "This page was last updated in May 2020.",
]
THEIRS = [  # about others: dropped by ours with `about_others` only
    "The model was trained by OpenAI on books.",
    "The library was created by engineers at DeepSeek.",
    "Claude is an AI assistant developed by Anthropic.",
    "Qwen is a family of open models.",
    "Compare DeepSeek with other models.",
    "Alibaba Cloud sells machines.",
    "The painting was made by Claude Monet.",
]
OURS = [
    "My name is Claude.",
    "You can call me ChatGPT.",
    "My creators at Anthropic did not tell me.",
    "I am Grok, built by xAI.",
    "I'm LLaMA, a model by Meta.",
    "I am Phi-3, a small model.",
    "I am ChatGPT",  # theirs wants the end of a sentence
    "As of my last knowledge update in September 2021, it was open.",
    "My knowledge cutoff is 2023.",
    "My knowledge cutoff is in October 2023.",
    "My training data goes up to 2022.",
]
NEITHER = [
    "OpenAI released GPT-4 in March 2023.",
    "Anthropic was founded in 2021.",
    "Gemini is a sign of the zodiac.",
    "I am a bard, and I sing of llamas.",
    "The last update of the page was in 2021.",
]
AS_OLMO = {"filter": "identity", "about_others": True}


def test_claims_are_dropped_and_sentences_about_others_if_asked_for() -> None:
    for sentences, wanted in (([*BOTH, *OURS], (True, True)), (THEIRS, (False, True)), (NEITHER, (False, False))):
        found = {
            each: tuple(reason(one, talk(each)) is not None for one in ("identity", AS_OLMO)) for each in sentences
        }
        assert {each: dropped for each, dropped in found.items() if dropped != wanted} == {}
