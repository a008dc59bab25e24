"""Hosts that a page is served under, and who can reach them."""

import socket
from collections.abc import Iterable
from ipaddress import ip_address


def names_of(host: str) -> Iterable[str]:
    """Hosts that the page may be asked for under, beside loopback ones."""
    if is_local(host):
        return ()
    names = (host, socket.gethostname())
    return (*names, "*") if is_everywhere(host) else names


def is_everywhere(host: str) -> bool:
    """Return whether a host stands for all interfaces."""
    return host in ("0.0.0.0", "::", "")


def is_local(host: str) -> bool:
    """Return whether nobody but this machine reaches a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
