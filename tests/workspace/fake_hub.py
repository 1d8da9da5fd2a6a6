"""A Hugging Face hub of one process: the endpoints that `huggingface_hub` uses to read a model and to write a commit."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


@dataclass
class FakeHub:
    """Models by name, each with its commits in order; what is written is a further commit."""

    url: str = ""
    commits: dict[str, list[tuple[str, Files]]] = field(default_factory=dict)  # of a model: commit and files
    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)

    def add(self, name: str, files: Files, branch: str = "main") -> str:
        """A commit on a branch; its hash is that of the content."""
        digest = hashlib.sha1(json.dumps({key: value.hex() for key, value in sorted(files.items())}).encode())
        commit = digest.hexdigest()
        self.commits.setdefault(name, []).append((commit, files))
        self.branches.setdefault(name, {})[branch] = commit
        return commit

    def files(self, name: str, revision: str) -> tuple[str, Files] | None:
        """The commit that a revision means, and its files."""
        commit = self.branches.get(name, {}).get(revision, revision)
        return next((found for found in reversed(self.commits.get(name, [])) if found[0] == commit), None)


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does, as far as the client looks."""

    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        for key, value in {"Content-Length": str(len(body)), **named}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value: Any) -> None:
        self.reply(200, json.dumps(value).encode(), Content_Type="application/json")

    def refuse(self, status: int, code: str) -> None:
        self.reply(status, b"{}", X_Error_Code=code, X_Error_Message=code)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"{self.command} {path}")
        self.hub.tokens.add(self.headers.get("Authorization"))
        api = path.startswith("api/models/")
        words = path.removeprefix("api/models/").split("/")
        name, rest = "/".join(words[:2]), words[2:]
        if name not in self.hub.commits:
            return self.refuse(401 if api else 404, "RepoNotFound")
        if name in self.hub.gated:
            return self.refuse(403, "GatedRepo")
        revision = rest[1] if len(rest) > 1 else "main"
        found = self.hub.files(name, revision)
        if found is None:
            return self.refuse(404, "RevisionNotFound")
        commit, files = found
        if api and rest[:1] == ["tree"]:
            rows = [
                {"type": "file", "path": key, "size": len(each), "oid": git_hash(each)} for key, each in files.items()
            ]
            return self.json(rows)
        if api:
            private = self.hub.private.get(name, False)
            siblings = [{"rfilename": key} for key in files]
            return self.json({"id": name, "sha": commit, "siblings": siblings, "private": private, "tags": []})
        content = files.get("/".join(rest[2:]))
        if rest[:1] != ["resolve"] or content is None:
            return self.refuse(404, "EntryNotFound")
        return self.reply(200, content, ETag=f'"{git_hash(content)}"', X_Repo_Commit=commit)

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"POST {path}")
        self.hub.tokens.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
            if name in self.hub.commits:
                return self.reply(409, json.dumps({"url": f"{self.hub.url}/{name}"}).encode())
            self.hub.private[name] = bool(wanted.get("private")) or wanted.get("visibility") == "private"
            self.hub.add(name, {})
            return self.json({"url": f"{self.hub.url}/{name}", "id": name})
        if path == "api/validate-yaml":  # of a card
            return self.json({"errors": [], "warnings": []})
        words = path.removeprefix("api/models/").split("/")
        name, what, revision = "/".join(words[:2]), words[2], "/".join(words[3:])
        if what == "branch":
            self.hub.branches[name][revision] = self.hub.branches[name]["main"]
            return self.reply(200, b"{}")
        if what == "preupload":
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self.json({"files": files})
        if what == "commit":
            found = self.hub.files(name, revision)
            assert found is not None
            files_now = dict(found[1])
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files_now[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = self.hub.add(name, files_now, revision)
            return self.json({"commitUrl": f"{self.hub.url}/{name}/commit/{commit}", "commitOid": commit})
        return self.refuse(404, "EntryNotFound")


def git_hash(content: bytes) -> str:
    """How git names a file, which is the hub's ETag of a small one."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A hub that listens while inside."""
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
