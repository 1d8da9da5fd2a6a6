"""A shell session: commands run in one bash, so folder, files, variables and functions stay.

with Shell(Limits(seconds=30)) as shell:
    shell.run("cd /tmp && export NAME=x")
    shell.run("pwd; echo $NAME").output       # "/tmp\\nx\\n"
"""

from __future__ import annotations

import base64
import re
import secrets
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

from ingot.sandbox.program import EndedBy, Limits, Program
from ingot.sandbox.session import Session, SessionOutput
from ingot.workspace.errors import IngotError

START_SECONDS = 30.0


class Shell(Session):
    """bash. The input of a command is empty."""

    def __init__(self, limits: Limits, environment: dict[str, str] | None = None) -> None:
        bash = shutil.which("bash", path="/bin:/usr/bin:/usr/local/bin")
        if bash is None:
            raise IngotError("there is no bash on this machine", place="sandbox", fix="install bash")
        # interactive, so that SIGINT ends a command and not the shell
        command = (bash, "--norc", "--noprofile", "--noediting", "-i")
        super().__init__(Program(command, environment={"TERM": "dumb", "PAGER": "cat", **(environment or {})}), limits)
        self._call("set +o histexpand +o history; PS1=; PS2=", replace(limits, seconds=START_SECONDS))

    def run(self, command: str, seconds: float | None = None) -> SessionOutput:
        """Run a command within `seconds` (the session's limit unless said otherwise)."""
        if "\0" in command:
            raise IngotError("a command has a NUL character", place="sandbox", fix="leave it out")
        output, status, stopped = self._call(command, self._limits(seconds))
        return SessionOutput(output.decode("utf-8", "replace"), status, stopped)

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        most = self.limits.file + 1
        limits = replace(self.limits, output=most)
        output, status, _ = self._call(f"command head -c {most} < {shlex.quote(path)}", limits)
        if status != 0:
            raise IngotError(output.decode("utf-8", "replace").strip(), place=path, fix="name a file that is there")
        self._check_size(len(output))
        return output

    def write(self, path: str, data: bytes) -> None:
        """Write a file, and the folders it is in."""
        self._check_size(len(data))
        quoted = shlex.quote(path)
        folder = shlex.quote(str(Path(path).parent))
        text = base64.b64encode(data).decode()
        output, status, _ = self._call(
            f"command mkdir -p {folder} && command base64 -d > {quoted} <<< '{text}'", self.limits
        )
        if status != 0:
            raise IngotError(
                output.decode("utf-8", "replace").strip(), place=path, fix="name a folder that can be written"
            )

    def _call(self, command: str, limits: Limits) -> tuple[bytes, int, EndedBy | None]:
        mark = secrets.token_hex(8)
        # two lines: an interrupt ends the first, and bash goes on with the second
        text = f"eval {shlex.quote(command)} </dev/null 2>&1 3>&-\nprintf '%s %s\\n' {mark} \"$?\" >&3\n"

        def answer(control: bytes) -> bytes | None:
            found = re.search(rb"%b (\d{1,3})\n" % mark.encode(), control)
            return found[1] if found else None

        output, found, stopped = self._exchange(text.encode("utf-8", "surrogateescape"), answer, limits)
        return output, int(found or b"-1"), stopped
