"""The chat page in a real browser, in front of a server that says what a script tells it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ingot.inference.client import Client
from ingot.serve.ui.proxy import make_proxy
from ingot.serve.ui.serve import add_page
from tests.inference.fake_server import MODEL, FakeServer, Reply, calls, text
from tests.report.browsing import CHROMIUM, NARROW, WIDE, overflow, texts
from tests.serve.ui.conftest import CALCULATOR, PYTHON, TOOLS, Script, running, say

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]
Open = Callable[..., Any]
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "[click](javascript:window.hacked=3)",
    "[data](data:text/html,<script>window.hacked=4</script>)",
    "**<iframe srcdoc='<script>parent.hacked=5</script>'></iframe>**",
    "`</code></pre><svg onload=window.hacked=6>`",
    "```\n</pre><style>body{display:none}</style>\n```",
    "| <b onclick=1>a</b> | b |\n|---|---|\n| <form action=//x> | [x](vbscript:1) |",
    "# <h1 onclick=alert(1)>",
    '[a](https://example.com/"onmouseover="window.hacked=7)',
    "</div></main><input autofocus onfocus=window.hacked=8>",
)

# the contrast of the text in some elements with what is behind it, by the formula of WCAG 2
CONTRASTS = """
(names) => {
  const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).map((part) => linear(Number(part) / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour.endsWith(", 0)") ? behind(element.parentElement) : colour;
  };
  return names.map((name) => {
    const element = document.querySelector(name);
    const pair = [light(getComputedStyle(element).color), light(behind(element))].sort((a, b) => b - a);
    return [name, (pair[0] + 0.05) / (pair[1] + 0.05)];
  });
}
"""


def test_an_answer_is_shown_while_it_comes(open_chat: Open, script: Script, behind: FakeServer) -> None:
    gate = threading.Event()
    script.say(text("The **first", "** part", " and the rest.", gate=gate))
    page = open_chat()
    assert page.title() == f"{MODEL} · Ingot chat"
    say(page, "Go on", wait=False)
    page.locator(".turn.assistant .markdown").wait_for()
    assert texts(page, ".turn.assistant .markdown") == ["The **first"]
    assert page.locator("#stop").is_visible() and not page.locator("#send").is_visible()
    gate.set()
    page.locator("#send:not([hidden])").wait_for()
    assert texts(page, ".turn.assistant .markdown") == ["The first part and the rest."]
    assert texts(page, ".turn.assistant strong") == ["first"]
    assert texts(page, ".turn.user .bubble") == ["Go on"]
    assert re.search(r"^12 tokens · [\d.,]+ tokens/s · [\d.]+ s to the first$", texts(page, ".stats")[0])
    assert texts(page, "#room") == ["32 of 4,096 tokens"]
    assert behind.keys[-1] == "Bearer secret"  # which the browser has never seen
    assert "secret" not in page.content()
    (body,) = behind.bodies
    assert body["messages"] == [{"role": "user", "content": "Go on"}] and body["model"] == MODEL


def test_thinking_is_folded_and_can_be_opened_while_it_comes(open_chat: Open, script: Script) -> None:
    gate = threading.Event()
    thoughts = [{"reasoning_content": f"thought {number} "} for number in range(3)]
    script.say(Reply([*thoughts, {"content": "The answer."}], gate=gate))
    page = open_chat()
    say(page, "Think", wait=False)
    block = page.locator(".thinking")
    block.wait_for()
    assert texts(page, ".thinking summary") == ["Thinking …"] and not page.locator(".trace").is_visible()
    page.locator(".thinking summary").click()
    assert texts(page, ".trace") == ["thought 0"]
    gate.set()
    page.locator("#send:not([hidden])").wait_for()
    assert texts(page, ".trace") == ["thought 0 thought 1 thought 2"]  # still open
    assert texts(page, ".thinking summary") == ["Thoughts"]
    page.reload()
    page.locator(".thinking").wait_for()
    assert not page.locator(".trace").is_visible()
    colours = page.evaluate(
        "['.thinking', '.markdown'].map(name => getComputedStyle(document.querySelector(name)).color)"
    )
    assert colours[0] != colours[1]


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stop(open_chat: Open, script: Script, behind: FakeServer, how: str) -> None:
    gate = threading.Event()
    script.say(text("One. ", "More. ", gate=gate, endless=True))
    page = open_chat()
    say(page, "Count", wait=False)
    page.locator(".markdown").wait_for()
    if how == "button":
        page.locator("#stop").click()
    else:
        page.keyboard.press("Escape")
    page.locator("#send:not([hidden])").wait_for()
    gate.set()
    assert behind.left.wait(timeout=15)  # the server behind is told by the broken connection
    assert texts(page, ".turn.assistant .markdown") == ["One."] and texts(page, ".note") == ["Stopped."]
    script.say(text("Yes."))
    say(page, "Still there?")
    assert [message["content"] for message in behind.bodies[-1]["messages"]] == ["Count", "One. ", "Still there?"]


def test_tools_run_on_the_server_and_their_results_go_back(open_chat: Open, script: Script, behind: FakeServer) -> None:
    script.say(calls("calculator", '{"expres', 'sion": "6*7"}', thinking="call it"), text("It is 42."))
    page = open_chat()
    say(page, "What is 6*7?")
    assert texts(page, ".call strong") == ["calculator"] and texts(page, ".call dt") == ["expression"]
    assert texts(page, ".call pre") == ["6*7", "42"] and texts(page, ".call .state") == ["✓ done"]
    assert texts(page, ".turn.assistant .markdown") == ["It is 42."]
    first, second = behind.bodies
    assert [tool["function"] for tool in first["tools"]] == [CALCULATOR, PYTHON]
    call = {
        "id": "call_abc",
        "type": "function",
        "function": {"name": "calculator", "arguments": '{"expression": "6*7"}'},
    }
    assert second["messages"][1:] == [
        {"role": "assistant", "content": "", "reasoning_content": "call it", "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "call_abc"},
    ]


@pytest.mark.parametrize(
    ("button", "result"), [("Run", "ran 1+1"), ("Refuse", "error: the user did not allow this call"), ("Stop", None)]
)
def test_a_tool_that_asks(open_chat: Open, script: Script, behind: FakeServer, button: str, result: str | None) -> None:
    script.say(calls("python", json.dumps({"code": "1+1"})), text("Done."))
    page = open_chat()
    say(page, "Run it", wait=False)
    page.locator(".ask").wait_for()
    assert len(behind.bodies) == 1
    page.get_by_role("button", name=button, exact=True).click()
    page.locator("#send:not([hidden])").wait_for()
    if result is None:
        assert len(behind.bodies) == 1 and texts(page, ".result") == ["error: the user stopped the call"]
        say(page, "Go on")
        assert behind.bodies[1]["messages"][2]["content"] == "error: the user stopped the call"
    else:
        assert behind.bodies[1]["messages"][-1]["content"] == result and texts(page, ".result") == [result]


def test_without_asking_and_without_tools(open_chat: Open, script: Script, behind: FakeServer) -> None:
    script.say(calls("python", '{"code": "1"}'), text("Done."), calls("nothing", "{}"), text("Sorry."), text("No."))
    page = open_chat()
    page.locator("#show-settings").click()
    page.get_by_label("Ask before a tool runs on this machine").uncheck()
    say(page, "Run it")
    assert texts(page, ".result") == ["ran 1"]
    say(page, "Another")
    assert texts(page, ".result")[1] == "error: there is no tool nothing; there are: calculator, python"
    page.get_by_label("Let the model call tools").uncheck()
    page.get_by_label("Think first").uncheck()
    say(page, "None")
    assert "tools" not in behind.bodies[-1]
    assert behind.bodies[-1]["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_model_that_was_not_made_for_tools_is_offered_none(
    open_chat: Open, script: Script, behind: FakeServer
) -> None:
    app = make_proxy(Client(behind.url))
    add_page(app, TOOLS, host="127.0.0.1", key=None, tools_on=False)
    script.say(text("Hello."))
    with running(app) as url:
        page = open_chat(url=url)
        say(page, "Hello")
        page.locator("#show-settings").click()
        page.get_by_label("Let the model call tools").check()
        say(page, "Hello again")
    assert ["tools" in body for body in behind.bodies] == [False, True]


def test_conversations_are_there_after_a_reload(open_chat: Open, script: Script) -> None:
    script.say(text("Paris."))
    page = open_chat()
    say(page, "Capital of France?")
    page.keyboard.press("Alt+n")
    assert page.locator(".turn").count() == 0
    say(page, "Capital of Italy?")
    page.reload()
    page.locator(".turn").first.wait_for()
    assert texts(page, ".entry .open") == ["Capital of Italy?", "Capital of France?"]
    assert texts(page, ".bubble") == ["Capital of Italy?"] and texts(page, "#room") == ["32 of 4,096 tokens"]
    page.locator(".entry .open", has_text="France").click()
    assert texts(page, ".bubble") == ["Capital of France?"] and texts(page, ".markdown") == ["Paris."]
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator(".entry", has_text="France").hover()
    page.locator(".entry", has_text="France").locator(".remove").click()
    assert texts(page, ".entry .open") == ["Capital of Italy?"] and page.locator(".turn").count() == 0
    assert "France" not in page.evaluate("JSON.stringify(localStorage)")


def test_two_tabs_share_the_list(open_chat: Open, script: Script, address: str) -> None:
    script.say(text("Yes."))
    page = open_chat()
    other = page.context.new_page()
    other.goto(address)
    other.locator("#model:not(:empty)").wait_for()
    say(page, "In the first tab")
    other.locator(".entry", has_text="first").wait_for()
    say(other, "In the second tab")
    page.locator(".entry", has_text="second").wait_for()
    page.reload()
    page.locator(".entry").first.wait_for()
    assert texts(page, ".entry .open") == ["In the second tab", "In the first tab"]


def test_hostile_text_stays_text(open_chat: Open, script: Script) -> None:
    hostile = "\n\n".join(HOSTILE)
    first = calls("python", json.dumps({"code": hostile}), thinking=hostile)
    script.say(first, text(*(hostile[at : at + 7] for at in range(0, len(hostile), 7))))
    page = open_chat()
    page.locator("#show-settings").click()
    page.get_by_label("Ask before a tool runs on this machine").uncheck()
    say(page, hostile)
    page.locator(".thinking summary").click()
    assert page.evaluate("window.hacked") is None
    inside = "script, img, iframe, svg, style, form, input, b, h1, [onclick], [onerror], [onload], [onmouseover]"
    assert page.locator("#messages").locator(inside).count() == 0
    assert page.locator("#messages a").evaluate_all("links => links.map(link => new URL(link.href).protocol)") == [
        "https:"
    ]
    assert page.locator(".bubble").evaluate("element => element.textContent") == hostile
    assert page.locator(".trace").evaluate("element => element.textContent") == hostile
    assert page.locator(".call pre").first.evaluate("element => element.textContent") == hostile
    shown = page.locator(".markdown").last.inner_text()
    for part in ("<script>window.hacked = 1</script>", "[click](javascript:window.hacked=3)", "<form action=//x>"):
        assert part in shown
    page.reload()
    page.locator(".markdown").first.wait_for()
    assert page.evaluate("window.hacked") is None and page.locator("script").count() == 2


def test_edit_regenerate_and_settings(open_chat: Open, script: Script, behind: FakeServer) -> None:
    script.say(text("One."), text("Two."), text("Three."), text("Four."))
    page = open_chat()
    page.locator("#show-settings").click()
    page.get_by_label("Temperature", exact=True).and_(page.locator("input")).fill("0.25")
    page.get_by_label("Top-p", exact=True).and_(page.locator("input")).fill("0.9")
    page.get_by_label("Longest answer").fill("77")
    page.get_by_label("Seed").fill("5")
    page.get_by_label("System prompt").fill("Be short.")
    say(page, "First")
    say(page, "Second")
    body = behind.bodies[-1]
    sent = {key: body[key] for key in ("temperature", "top_p", "max_tokens", "seed")}
    assert sent == {"temperature": 0.25, "top_p": 0.9, "max_tokens": 77, "seed": 5}
    assert body["messages"][0] == {"role": "system", "content": "Be short."}
    page.get_by_role("button", name="Regenerate the answer").click()
    page.locator(".markdown", has_text="Three").wait_for()
    assert behind.bodies[-1]["messages"] == body["messages"] and behind.bodies[-1]["seed"] == 6
    page.locator(".turn.user").first.hover()
    page.get_by_role("button", name="Edit and send again").first.click()
    assert page.get_by_label("Edit the message").input_value() == "First"
    page.get_by_label("Edit the message").fill("Other")
    page.keyboard.press("Enter")
    page.locator(".markdown", has_text="Four").wait_for()
    assert texts(page, ".bubble") == ["Other"] and texts(page, ".markdown") == ["Four."]
    assert [message["content"] for message in behind.bodies[-1]["messages"]] == ["Be short.", "Other"]
    page.locator("#send:not([hidden])").wait_for()
    page.locator("#input").focus()
    page.keyboard.press("ArrowUp")
    assert page.get_by_label("Edit the message").input_value() == "Other"
    page.keyboard.press("Escape")
    assert texts(page, ".bubble") == ["Other"]
    page.reload()
    page.locator("#show-settings").click()
    assert page.get_by_label("System prompt").input_value() == "Be short."


def test_what_goes_wrong_is_said_with_what_to_do(open_chat: Open, script: Script, behind: FakeServer) -> None:
    full = Reply(status=429, error={"message": "40 requests wait"}, headers={"Retry-After": "3"})
    long = Reply(status=400, error={"message": "too many tokens", "code": "context_length_exceeded"})
    script.say(full, long, text("half", breaks=True), text("Whole."))
    page = open_chat(refused=(400, 429))
    say(page, "Hello")
    assert texts(page, "#trouble .what") == ["40 requests wait"]
    assert texts(page, "#trouble .fix") == ["The server is full. Try again in 3 seconds."]
    assert texts(page, ".bubble") == ["Hello"]  # nothing is lost
    page.get_by_role("button", name="Try again").click()
    page.locator("#trouble", has_text="longer than the model can read").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.locator("#trouble", has_text="ended in the middle").wait_for()
    assert texts(page, ".markdown") == ["half"]
    page.get_by_role("button", name="Try again").click()
    page.locator(".markdown", has_text="Whole.").wait_for()
    page.locator("#send:not([hidden])").wait_for()
    assert page.locator("#trouble").count() == 0
    assert all([message["content"] for message in body["messages"]] == ["Hello"] for body in behind.bodies)


def test_an_answer_that_is_cut_off_says_so(open_chat: Open, script: Script) -> None:
    script.say(text("And then", finish="length"))
    page = open_chat()
    say(page, "Tell me")
    assert "limit of tokens" in texts(page, ".note")[0]
    script.say(text(" ", finish="stop"))
    say(page, "And now?")
    page.locator(".turn.assistant .note", has_text="ended its turn without an answer").wait_for()


def test_probabilities_of_tokens(open_chat: Open, script: Script, behind: FakeServer) -> None:
    other = [{"token": " Rome", "logprob": -2.3026}, {"token": " Paris", "logprob": -0.10536}]
    entries = [
        {"token": "It is", "logprob": 0.0, "top_logprobs": []},
        {"token": " Paris", "logprob": -0.10536, "top_logprobs": other},
    ]
    script.say(Reply([{"content": entry["token"], "logprobs": {"content": [entry]}} for entry in entries]))
    page = open_chat()
    page.locator("#show-settings").click()
    page.get_by_label("Show the probability of each token").check()
    say(page, "Where?")
    assert behind.bodies[0]["logprobs"] is True and behind.bodies[0]["top_logprobs"] == 5
    tokens = page.locator(".token-view .token")
    assert tokens.evaluate_all("all => all.map(one => one.textContent)") == ["It is", " Paris"]
    assert tokens.evaluate_all("all => all.map(one => one.style.getPropertyValue('--doubt'))") == ["0.000", "0.100"]
    tokens.nth(1).hover()
    assert texts(page, "#tip tr") == ["␣Paris 90.0 %", "␣Rome 10.0 %"] and texts(page, "#tip .chosen th") == ["␣Paris"]
    page.mouse.move(5, 5)
    page.locator(".token-view").focus()
    page.keyboard.press("ArrowRight")
    assert texts(page, "#tip tr") == ["It is 100.0 %"]
    page.get_by_label("Show the probability of each token").uncheck()
    assert texts(page, ".markdown") == ["It is Paris"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nothing_sticks_out(open_chat: Open, script: Script, width: int) -> None:
    long = "word" * 80
    wide = f"{long}\n\n```\n{long}\n```\n\n| {' | '.join(['column'] * 12)} |\n|{'---|' * 12}\n| {' | '.join(['x' * 9] * 12)} |"
    script.say(calls("calculator", '{"expression": "6*7"}', thinking=long), text(wide))
    page = open_chat(width=width)
    say(page, long)
    assert overflow(page) == 0
    columns = page.locator(".messages > *").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
    assert max(columns) <= width
    page.locator("#show-settings").click()
    assert page.locator("#settings").is_visible() and overflow(page) == 0
    if width == NARROW:
        page.keyboard.press("Escape")
        assert not page.locator("#settings").is_visible() and not page.locator("#list").is_visible()
        page.locator("#show-list").click()
        page.locator("#new").click()
        assert not page.locator("#list").is_visible()
        box = page.locator("#send").bounding_box()
        assert box["y"] + box["height"] <= 860 and box["x"] + box["width"] <= width
    assert overflow(page) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_can_be_read(open_chat: Open, script: Script, scheme: str) -> None:
    script.say(Reply([{"reasoning_content": "hm"}, {"content": "Yes, `code`.\n\n```\nx\n```"}]))
    page = open_chat(scheme=scheme)
    page.locator("#show-settings").click()
    say(page, "Is it?")
    nameless = page.locator("button, input, textarea, select, [role=group]").evaluate_all(
        """all => all.filter(one => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length))
                     .map(one => one.outerHTML)"""
    )
    assert nameless == []
    contrasts = page.evaluate(
        CONTRASTS, [".bubble", ".markdown p", ".thinking summary", ".stats", ".hint", ".field small"]
    )
    assert {name: round(value, 2) for name, value in contrasts if value < 4.5} == {}
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")
