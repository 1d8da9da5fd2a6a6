"""Drops conversations in which the assistant says that it is somebody else's model, or when its knowledge ends.

A model repeats such sentences of the models that wrote its data. Looked for, in what the assistant writes:

    claims     "I am NAME", "my name is NAME", "made by NAME", "as an AI model of NAME", "NAME's policies"
    dates      "my knowledge cutoff is in 2023", "as of my last update in April 2021"

Names and kinds of sentences are those that OLMo 3's data is cleaned of (open-instruct, filter_dataset_by_keywords.py and
filter_cutoff_date.py; arXiv 2512.13961); the patterns are ours. A text *about* a company is no claim, and stays; OLMo 3 drops
much of that as well ("trained by NAME" of anything, every sentence with Qwen), which `about_others` does. Wider than theirs: more
names, "my name is", "my creators", more ways to tell a date, sentences without an end.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import Field

from ingot.post.data.conversations.conversation_filter import ConversationFilter

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation

NAMES = (
    *(
        "OpenAI",
        "Open AI",
        "ChatGPT",
        "GPT-3",
        "GPT-3.5",
        "GPT-4",
        "GPT-4o",
        "Anthropic",
        "Claude",
        "Google DeepMind",
        "Gemini",
    ),
    *(
        "Bard",
        "Meta AI",
        "LLaMA",
        "Llama",
        "Mistral",
        "Mistral AI",
        "Mixtral",
        "Qwen",
        "Alibaba Cloud",
        "Tongyi",
        "DeepSeek",
    ),
    *(
        "Cohere",
        "Command R",
        "xAI",
        "Grok",
        "Perplexity",
        "Moonshot AI",
        "Kimi",
        "Zhipu AI",
        "ChatGLM",
        "MiniMax",
        "Open Assistant",
    ),
    *("Vicuna", "LMSYS", "Phi-3", "Phi-4"),
)
ANYWHERE = r"\b(?:DeepSeek|Qwen|Alibaba\s+Cloud)\b"  # in OLMo 3 any mention of these is dropped
DATE = re.compile(
    r"\b(?:knowledge|training|information)[ -](?:data )?(?:cut[- ]?off|ends?|stops?|extends?)\b"
    r"|\b(?:as of|since|until|to) my (?:last|latest|most recent) (?:training |knowledge |data )?(?:update|cut[- ]?off)"
    r"|\bmy (?:training data|knowledge)\b[^.!?\n]{0,60}\b(?:20\d\d)\b"
    r"|\b(?:last|most recently) (?:updated|trained) (?:in|on)\b[^.!?\n]{0,20}\b20\d\d\b",
    re.IGNORECASE,
)


class IdentityFilter(ConversationFilter):
    """Claims to be a model of others, and dates at which knowledge ends."""

    names: tuple[str, ...] = Field(NAMES, min_length=1, description="models and developers that the assistant is not")
    about_others: bool = Field(
        False, description='also drop what is said of others\' models, as OLMo 3: "trained by NAME", any word of Qwen'
    )
    dates: bool = Field(True, description="also drop sentences about when the model's knowledge ends")

    @cached_property
    def _claim(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        name = rf"(?-i:{names})\b"
        made = r"\b(?:made|trained|developed|created|built|designed|programmed) by\b"
        others = rf"|{made}[^.!?\n]{{0,100}}?\b{name}|{ANYWHERE}" if self.about_others else ""
        model = r"(?:an? )?(?:large )?(?:ai |language |chat)?(?:model|assistant|bot|chatbot|ai|system)"
        return re.compile(
            rf"\b(?:i am|i['’]m|my name is|i am called|call me|you can call me) (?:(?:an? |the )?{name}|(?:{names})\b)"
            rf"|\b(?:i am|i['’]m|i was|as) {model}\b[^.!?\n]{{0,80}}\b{name}"
            rf"|\bi (?:am|was)\b[^.!?\n]{{0,60}}{made}[^.!?\n]{{0,40}}?\b{name}"
            rf"|\b(?:my|our) (?:creators?|developers?|makers?)\b[^.!?\n]{{0,40}}\b{name}"
            rf"|\b(?:against|violates?|under|by) {name}['’]?s? (?:content |use |usage )?(?:policy|policies|guidelines|terms)\b"
            rf"|\b{name}['’]s (?:content |use |usage |use-case )?(?:policy|policies|guidelines|terms)\b{others}",
            re.IGNORECASE,
        )

    def reason(self, conversation: Conversation) -> str | None:
        for message in conversation.answers:
            for text in (message.thinking or "", message.content):
                found = self._claim.search(text) or (DATE.search(text) if self.dates else None)
                if found:
                    return f"says {found[0]!r}"
        return None
