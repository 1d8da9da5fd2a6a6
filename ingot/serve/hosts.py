"""Checks the Host header of requests, against DNS rebinding.

A server on loopback can be reached by every web site that the user has open. A site whose name is made to point to this machine
(DNS rebinding) sends requests whose answers its own scripts may read. They carry the site's name in the Host header, so a server
on loopback answers only to names of this machine. A public server has a key, which the site does not know: any name will do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header: without the port, and without the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()


class Hosts:
    """The names that a server at `address` answers to, `allowed` among them; with "*" any."""

    def __init__(self, address: str, allowed: Collection[str] = ()) -> None:
        self.any = "*" in allowed or not (is_local(address) or allowed)
        self.names = frozenset(name.lower().strip("[]") for name in (address, *allowed))

    def answers_to(self, header: str) -> bool:
        """Whether a request with this Host header is for this server."""
        name = host_name(header)
        return self.any or name in self.names or is_local(name)
