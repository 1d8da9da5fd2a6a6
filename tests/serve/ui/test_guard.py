"""Which requests the page's server answers: over real sockets, with the headers that browsers and attackers send."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from ingot.inference.client import Client
from ingot.serve.hosts import is_local
from ingot.serve.ui.proxy import make_proxy
from ingot.serve.ui.serve import add_page, page_key
from tests.inference.fake_server import MODEL, FakeServer
from tests.serve.ui.conftest import TOOLS, running

CALL = {"name": "calculator", "arguments": {"expression": "6*7"}}


def ask(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, json.dumps(body) if body is not None else None, sent)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    is_json = (response.getheader("Content-Type") or "").startswith("application/json")
    return response.status, json.loads(data) if is_json else data, {k.lower(): v for k, v in response.getheaders()}


@pytest.fixture(scope="module")
def with_key(behind: FakeServer) -> Iterator[str]:
    app = make_proxy(Client(behind.url))
    add_page(app, TOOLS, host="0.0.0.0", key="k3y")
    with running(app) as url:
        yield url


def test_this_machine_may(address: str) -> None:
    assert ask(address, "POST", "/ui/tools", CALL)[:2] == (200, {"content": "42"})
    port = urlsplit(address).port
    for name in ("localhost", "127.0.0.1", "[::1]"):
        origin = f"http://{name}:{port}"
        assert ask(address, "POST", "/ui/tools", CALL, Host=f"{name}:{port}", Origin=origin)[0] == 200
    assert [tool["asks"] for tool in ask(address, "GET", "/ui/tools")[1]["tools"]] == [False, True]
    assert ask(address, "GET", "/v1/models")[1]["data"][0]["id"] == MODEL
    status, body, _ = ask(address, "GET", "/v1/embeddings")
    assert status == 404 and "nothing at /v1/embeddings" in body["error"]["message"]


@pytest.mark.parametrize("path", ["/ui/tools", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},  # a name that was made to point here
        {"Host": "127.0.0.1.attacker.example:80"},
        {"Host": "localhost.attacker.example"},
        {"Host": ""},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},  # another port is another site
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_sites_may_not(address: str, behind: FakeServer, path: str, headers: dict[str, str]) -> None:
    before = len(behind.bodies)
    status, body, answer = ask(address, "POST", path, CALL, **headers)
    assert status == 403 and "error" in body and len(behind.bodies) == before
    assert "access-control-allow-origin" not in answer


def test_a_form_runs_no_tool_and_bodies_are_checked(address: str) -> None:
    assert ask(address, "POST", "/ui/tools", CALL, Content_Type="text/plain")[0] == 415
    assert ask(address, "POST", "/ui/tools", CALL, Content_Type="application/x-www-form-urlencoded")[0] == 415
    wrong: list[Any] = [[], {"name": "calculator"}, {"name": 5, "arguments": {}}, {"name": "x", "arguments": []}, "x"]
    for body in wrong:
        assert ask(address, "POST", "/ui/tools", body)[0] == 400
    assert ask(address, "POST", "/ui/tools", {"name": "calculator", "arguments": {"expression": "x" * 2**20}})[0] == 400
    status, answer, _ = ask(address, "POST", "/ui/tools", {"name": "nothing", "arguments": {}})
    assert status == 200 and answer["content"].startswith("error: there is no tool nothing")
    assert ask(address, "OPTIONS", "/ui/tools")[0] == 405


def test_a_page_may_be_opened_from_a_link_but_not_framed(address: str) -> None:
    status, body, headers = ask(address, "GET", "/", Sec_Fetch_Site="cross-site")
    assert status == 200 and b"<title>Ingot chat</title>" in body
    assert headers["x-frame-options"] == "DENY" and headers["cache-control"] == "no-store"
    assert (
        b"connect-src 'self'" in body
        and b"default-src 'none'" in body
        and b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    )


def test_with_a_key_everything_but_the_page_needs_it(with_key: str) -> None:
    assert ask(with_key, "GET", "/", Host="any.example")[0] == 200
    for path in ("/ui/tools", "/v1/models"):
        assert ask(with_key, "GET", path, Host="any.example")[0] == 401
        assert ask(with_key, "GET", path, Authorization="Bearer wrong")[0] == 401
        assert ask(with_key, "GET", path, Authorization="Bearer k3y")[0] == 200
    assert ask(with_key, "POST", "/ui/tools", CALL)[0] == 401


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.1.5", "localhost.example")),
    ],
)
def test_local_addresses(host: str, local: bool) -> None:
    assert is_local(host) == local


def test_tools_that_run_code_need_a_key_also_on_this_machine(behind: FakeServer) -> None:
    """The page's address carries it, as with a public server; a calculator needs none."""
    assert page_key(None, {"calculator": TOOLS["calculator"]}) is None
    key = page_key(None, TOOLS)
    assert key is not None and len(key) > 20 and key != page_key(None, TOOLS)
    assert page_key("own", TOOLS) == "own"


@pytest.mark.parametrize(
    ("tools", "keyed"), [("calculator,python", True), pytest.param("calculator", False, marks=pytest.mark.slow)]
)
def test_the_command_prints_a_key_where_code_can_run(behind: FakeServer, tools: str, keyed: bool) -> None:
    command = [sys.executable, "-m", "ingot", "ui", "--server", behind.url, "--port", "0", "--tools", tools]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert ("#key=" in line) == keyed, line
            url = line.split()[2]
            call = {"name": "python", "arguments": {"code": "print(6 * 7)"}}
            answered = ask(url, "POST", "/ui/tools", call)
            assert answered[0] == (401 if keyed else 200)
            if keyed:
                key = url.partition("#key=")[2]
                assert ask(url, "POST", "/ui/tools", CALL, Authorization=f"Bearer {key}")[:2] == (
                    200,
                    {"content": "42"},
                )
        finally:
            process.terminate()
