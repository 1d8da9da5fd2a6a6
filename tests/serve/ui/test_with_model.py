"""The page with a model of its own behind it: the whole way from the browser to the weights and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.envs.tools.tool import make_tool
from ingot.serve.ui.serve import _with_model, add_page
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import Tokenizer
from tests.report.browsing import CHROMIUM, texts
from tests.serve.speaker import FAREWELL, QUESTION, SCHEMA, train_small_tokenizer, train_speaker
from tests.serve.ui.conftest import running, say

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]
TOOLS = {"times": make_tool(lambda a, b: str(a * b), schema=SCHEMA, here=True)}


@pytest.fixture(scope="module")
def model_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model whose calls are Python, as those of recipes/quickstart.yaml are."""
    path = tmp_path_factory.mktemp("ui") / "speaker"
    template = template_text("ingot", {"call_style": "python"})
    save_checkpoint(path, train_speaker(Tokenizer(train_small_tokenizer().backend, template)))
    with _with_model(path) as served:
        assert served.calls_tools
        add_page(served.api, TOOLS, host="127.0.0.1", key="k3y")
        with running(served.api) as url:
            yield url


def test_talk_with_a_model(open_chat: Callable[..., Any], model_page: str) -> None:
    page = open_chat(url=f"{model_page}/#key=k3y", refused=(400,))
    assert page.url == f"{model_page}/"  # the key is not left in the address
    assert texts(page, "#model") == ["speaker"]
    page.locator("#show-settings").click()
    page.get_by_label("Temperature", exact=True).and_(page.locator("input")).fill("0")
    page.get_by_label("Longest answer").fill("100")
    page.get_by_label("Show the probability of each token").check()
    say(page, QUESTION, wait=False)
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("#send:not([hidden])").wait_for()
    assert texts(page, ".call pre") == ["12", "34", "408"]
    assert page.locator(".token-view").evaluate("element => element.textContent") == "It is 408 ⋅⋅— ja."  # three tokens
    page.locator(".thinking summary").first.click()
    page.locator(".thinking summary").last.click()
    assert texts(page, ".trace") == ["call it", "done"]
    say(page, FAREWELL)
    assert page.locator(".token-view").last.evaluate("element => element.textContent") == "See you"
    assert texts(page, "#room")[0].endswith("of 256 tokens")
    say(page, "1" * 200)
    assert "longer than the model can read" in texts(page, "#trouble .fix")[0]


def test_without_the_key_the_page_says_what_to_do(open_chat: Callable[..., Any], model_page: str) -> None:
    page = open_chat(url=model_page, refused=(401,))
    page.locator("#trouble").wait_for()
    assert "Open the page by the address that the terminal shows" in texts(page, "#trouble")[0]
