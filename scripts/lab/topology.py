"""What a lab is: its hosts, names, addresses, rates and priority classes. Pure values."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from trepak.scripts.errors import InputError

MAX_HOSTS = 64
MAX_PRIORITIES = 8
HEAD = "head"  # the host from which jobs are launched; it computes nothing, its link is not shaped
SWITCH = "switch"

# The DSCP that marks each class, the highest first: expedited forwarding, assured forwarding 4 to
# 1, class selector 1, lower effort. The last class takes whatever is not marked otherwise.
DSCP = (46, 34, 26, 18, 10, 8, 1)

PACKETS = range(1500, 65536 + 1)  # bytes that one may have
_SUBNET = "10.213.0"
_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def parse_rate(text: str) -> int:
    """Returns a rate such as "200mbit" or "1gbit" in bits per second.

    Raises:
        InputError: it is none, or not from 1 Mbit/s to 1 Tbit/s.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", text.strip().lower())
    if not match:
        raise InputError(f"{text!r} is not a rate; write it like 200mbit or 1gbit.")
    rate = float(match[1]) * _UNITS[match[2]]
    if not 10**6 <= rate <= 10**12:
        raise InputError(f"a rate must be from 1mbit to 1000gbit, found {text!r}.")
    return round(rate)


def format_rate(rate: int) -> str:
    """Returns bits per second as text that `parse_rate` and `tc` read."""
    for unit in ("gbit", "mbit", "kbit"):
        if rate % _UNITS[unit] == 0:
            return f"{rate // _UNITS[unit]}{unit}"
    return f"{rate}bit"


def check_name(name: str) -> None:
    """Raises InputError if no lab can have that name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,15}", name):
        raise InputError(f"a lab's name is 1 to 16 letters, digits and dashes, found {name!r}.")


@dataclass(frozen=True)
class Lab:
    """One lab.

    Attributes:
        name: what the user calls it: letters, digits and dashes, at most 16.
        hosts: how many hosts, `w0` and so on.
        rate: of each host's link, in either direction, in bits per second.
        priorities: number of strict-priority classes at each port.
        links: rates of single hosts' links, by name.
        packet: bytes of the largest packet; 0: what a link carries in 0.25 ms.
    """

    name: str
    hosts: int
    rate: int
    priorities: int = 2
    links: dict[str, int] = field(default_factory=dict)
    packet: int = 0

    def __post_init__(self) -> None:
        """Raises InputError, with what to write instead, for what can't be."""
        check_name(self.name)
        if not 1 <= self.hosts <= MAX_HOSTS:
            raise InputError(f"a lab has 1 to {MAX_HOSTS} hosts, found {self.hosts}.")
        if not 1 <= self.priorities <= MAX_PRIORITIES:
            raise InputError(
                f"a lab has 1 to {MAX_PRIORITIES} priorities, found {self.priorities}."
            )
        if self.packet and not PACKETS[0] <= self.packet <= PACKETS[-1]:
            raise InputError(
                f"a packet has {PACKETS[0]} to {PACKETS[-1]} bytes, found {self.packet}."
            )
        for host in self.links:
            self.check_host(host)

    @property
    def host_names(self) -> list[str]:
        """The workers' names, w0 and so on."""
        return [f"w{i}" for i in range(self.hosts)]

    @property
    def classes(self) -> list[int | None]:
        """The DSCP of each priority class, the highest first; None is whatever is left."""
        return [*DSCP[: self.priorities - 1], None]

    def check_host(self, host: str) -> None:
        """Raises InputError if the lab has no such host."""
        if host not in self.host_names:
            raise InputError(
                f"the lab {self.name} has no host {host!r}; it has w0 to w{self.hosts - 1}."
            )

    def namespace(self, place: str) -> str:
        """Returns the name of the network namespace of a host or the switch."""
        return f"trepak-{self.name}-{place}"

    def address(self, host: str) -> str:
        """Returns a host's IPv4 address; it means nothing outside this lab."""
        number = 254 if host == HEAD else int(host[1:]) + 1
        return f"{_SUBNET}.{number}"

    @property
    def subnet(self) -> str:
        """All of these addresses."""
        return f"{_SUBNET}.0/24"

    def link(self, host: str) -> int | None:
        """Returns the rate of a host's link in bits per second; None is not limited."""
        return None if host == HEAD else self.links.get(host, self.rate)

    def largest_packet(self, rate: int) -> int:
        """Returns bytes: a packet that has begun holds up the classes above it for that long."""
        return self.packet or max(2 * 1500, min(PACKETS[-1], int(rate * 0.25e-3 / 8)))

    def to_json(self) -> dict[str, Any]:
        """Returns what `Lab(**…)` takes."""
        return dataclasses.asdict(self)
