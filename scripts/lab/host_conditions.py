"""What makes a lab's hosts uneven in one job: the options, and what each rank is told of them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trepak.ops.injection import parse_delay, parse_slow
from trepak.scripts.errors import InputError
from trepak.scripts.lab.topology import Lab, parse_rate

_T = TypeVar("_T")
_LONGEST = 86400.0  # seconds of a delay

# By which a rank knows how uneven it is; see `horovod_ext.config`.
VARIABLES = ("TREPAK_SEED", "TREPAK_SLOW", "TREPAK_DELAY", "TREPAK_KILL")


@dataclass(frozen=True)
class HostConditions:
    """How a job's hosts differ.

    Attributes:
        links: by host, its link's rate in bits per second.
        slow: by host, the factor by which its ranks compute longer.
        delays: by host, the delays of its ranks' steps, in the form `ops.injection` reads.
        kill: by host, the step at whose end its ranks are killed.
        seed: of the delays.
    """

    links: dict[str, int] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    delays: dict[str, list[str]] = field(default_factory=dict)
    kill: dict[str, int] = field(default_factory=dict)
    seed: int = 0

    def variables(self, lab: Lab) -> dict[str, dict[str, str]]:
        """Returns the environment variables by which each host's ranks know it."""
        return {host: self._variables_of(host) for host in lab.host_names}

    def _variables_of(self, host: str) -> dict[str, str]:
        found = {
            "TREPAK_SEED": self.seed,
            "TREPAK_SLOW": self.slow.get(host),
            "TREPAK_DELAY": ",".join(self.delays[host]) if host in self.delays else None,
            "TREPAK_KILL": self.kill.get(host),
        }
        return {name: str(value) for name, value in found.items() if value is not None}


def read(lab: Lab, options: argparse.Namespace) -> HostConditions:
    """Reads the options of `trepak lab run`.

    Raises:
        InputError: names the option, what is wrong with it, and how to write it.
    """
    links = _by_host(lab, "--link", options.link, parse_rate)
    slow = _by_host(lab, "--slow", options.slow, parse_slow)
    delays: dict[str, list[str]] = {}
    for text in options.delay:
        rule, _, hosts = text.partition("@")
        if _parsed("--delay", rule, parse_delay).high > _LONGEST:
            raise InputError(f"--delay {text}: no more than {_LONGEST:g} seconds.")
        for host in hosts.split(",") if hosts else lab.host_names:
            lab.check_host(host)
            delays.setdefault(host, []).append(rule)
    kill = {}
    for text in options.kill:
        host, _, when = text.partition("@")
        lab.check_host(host)
        word, _, step = when.partition(":")
        if word != "step" or not re.fullmatch(r"[0-9]{1,18}", step):
            raise InputError(f"--kill {text}: write it like w1@step:30.")
        kill[host] = int(step)
    return HostConditions(links, slow, delays, kill, options.seed)


def _by_host(lab: Lab, option: str, texts: list[str], parse: Callable[[str], _T]) -> dict[str, _T]:
    found = {}
    for text in texts:
        host, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"{option} {text}: write it like w1=VALUE.")
        lab.check_host(host)
        found[host] = _parsed(option, value, parse)
    return found


def _parsed(option: str, text: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error


def to_json(conditions: HostConditions) -> dict[str, Any]:
    """Returns it for a report."""
    return {
        "links_bits_per_second": conditions.links,
        "slow": conditions.slow,
        "delays": conditions.delays,
        "kill_at_step": conditions.kill,
        "seed": conditions.seed,
    }
