"""Makes and removes a lab's network: namespaces, a bridge, strict-priority ports.

Each host is a network namespace whose eth0 is one end of a veth pair; the other end, named like the
host, is a port of the bridge in the switch's namespace. None of it is in the machine's own, whose
firewall and names do not matter. Both ends send through an htb queue of the link's rate, with one
class for each priority: htb lends spare rate to the class with the lowest prio first, so a class is
served only while the ones above it have nothing to send. A u32 filter on the DSCP bits picks the
class.

No port drops anything, as in a network with priority flow control, which holds senders back
instead; here TCP's windows do. Their limits and congestion control are the lab's, not the
machine's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trepak.scripts.errors import UserError
from trepak.scripts.lab.topology import HEAD, SWITCH, Lab

_HOSTS_FILES = Path("/etc/netns")  # `ip netns exec` mounts what lies here over /etc
_BRIDGE = "bridge"
_SECONDS = 20.0  # any of these commands takes milliseconds

_BUFFER = 16 << 20  # bytes of a port, for each class; more than the windows of 64 hosts
_WINDOW = 64 << 10  # bytes that wait on the way to a host, by connection, with their bookkeeping
_PACKET = (
    1500  # bytes; loopback's own are as large as the window: each would wait 40 ms for its ack
)
_SETTINGS = {
    "tcp_wmem": f"4096 16384 {_WINDOW}",
    "tcp_slow_start_after_idle": "0",  # connections keep their windows between two steps
}


class LabError(UserError):
    """The machine cannot do what a lab needs; the message says what to do."""


def _run(command: Sequence[str], text: str | None = None, check: bool = True) -> str:
    """Runs a command; returns what it printed."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is missing: install the package iproute2.") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(command)}` did not end in {_SECONDS:g} seconds.") from error
    if check and done.returncode:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def check_root() -> None:
    """Raises LabError unless this is root."""
    if os.geteuid() != 0:
        raise LabError("a lab needs root: it makes network namespaces. Run it with sudo.")


def check_machine() -> None:
    """Checks that labs are possible here: root, iproute2, namespaces, bridge, veth, htb and u32.

    Raises:
        LabError: names what is missing, and what to do.
    """
    check_root()
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            raise LabError(f"{tool} is missing: install the packages iproute2 and util-linux.")
    # All in a namespace of its own, which goes when the command ends.
    probe = (
        "ip link add name probe0 type bridge && ip link add name probe1 type veth peer probe2 && "
        "tc qdisc add dev probe1 root handle 1: htb default 1 && "
        "tc class add dev probe1 parent 1: classid 1:1 htb rate 8mbit && "
        "tc filter add dev probe1 parent 1: protocol ip u32 match ip tos 0xb8 0xfc flowid 1:1"
    )
    try:
        _run(["unshare", "--net", "--uts", "sh", "-ec", probe])
    except LabError as error:
        raise LabError(
            "this kernel or container has no network namespaces, bridge, veth, htb or u32, all of "
            f"which a lab needs: {error}"
        ) from error


def make(lab: Lab) -> None:
    """Makes the network of a lab.

    Raises:
        LabError: a command failed; what was made so far stays for `remove`.
    """
    _run(["ip", "netns", "add", lab.namespace(SWITCH)])
    _ip(lab, SWITCH, f"link add name {_BRIDGE} type bridge\nlink set {_BRIDGE} up\n")
    for host in [HEAD, *lab.host_names]:
        _add_host(lab, host)


def _ip(lab: Lab, place: str, lines: str) -> None:
    """Runs lines of `ip -batch` on a host or the switch."""
    _run(["ip", "-netns", lab.namespace(place), "-batch", "-"], lines)


def _add_host(lab: Lab, host: str) -> None:
    namespace = lab.namespace(host)
    _write_hosts_file(lab, host)
    _run(["ip", "netns", "add", namespace])
    _ip(
        lab,
        SWITCH,
        f"link add name {host} type veth peer name eth0 netns {namespace}\n"
        f"link set {host} master {_BRIDGE} up\n",
    )
    _ip(
        lab,
        host,
        f"link set lo mtu {_PACKET} up\n"
        f"address add {lab.address(host)}/24 dev eth0\nlink set eth0 up\n"
        f"route replace {lab.subnet} dev eth0 src {lab.address(host)} congctl cubic\n",
    )
    settings = [f"echo {value} > /proc/sys/net/ipv4/{name}" for name, value in _SETTINGS.items()]
    _run(["ip", "netns", "exec", namespace, "sh", "-ec", "\n".join(settings)])
    rate = lab.link(host)
    if rate is not None:
        _shape(lab, host, rate, "add")


def _shape(lab: Lab, host: str, rate: int, verb: str) -> None:
    """Gives a host's link its rate, at both ends; `verb` is add or change."""
    for place, device in ((SWITCH, host), (host, "eth0")):
        queues = _queues(lab, device, rate, verb)
        _run(["tc", "-netns", lab.namespace(place), "-batch", "-"], queues)
        _ip(lab, place, f"link set {device} gso_max_size {lab.largest_packet(rate)}\n")


def _write_hosts_file(lab: Lab, host: str) -> None:
    """Lets the hosts find each other by name."""
    folder = _HOSTS_FILES / lab.namespace(host)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{lab.address(other)} {other}" for other in [*lab.host_names, HEAD]]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "\n".join(lines) + "\n")


def _class_options(rate: int, ceil: int, packet: int) -> str:
    # A burst holds what leaves in 1 ms, since timers are not exact, and at least one packet.
    burst = packet + int(ceil * 1e-3 / 8)
    return f"rate {rate}bit ceil {ceil}bit burst {burst} cburst {burst} quantum 60000"


def _queues(lab: Lab, device: str, rate: int, verb: str) -> str:
    """Returns the lines for `tc -batch` that shape a device."""
    last, packet = lab.priorities - 1, lab.largest_packet(rate)
    lines = []
    if verb == "add":
        lines.append(f"qdisc add dev {device} root handle 1: htb default {10 + last}")
    lines.append(
        f"class {verb} dev {device} parent 1: classid 1:1 htb {_class_options(rate, rate, packet)}"
    )
    share = max(8000, rate // 1000)  # what a class may send while those above it fill the link
    for number, dscp in enumerate(lab.classes):
        leaf = f"1:{10 + number}"
        lines.append(
            f"class {verb} dev {device} parent 1:1 classid {leaf} htb "
            f"{_class_options(share, rate, packet)} prio {number}"
        )
        lines.append(f"qdisc replace dev {device} parent {leaf} bfifo limit {_BUFFER}")
        if verb == "add" and dscp is not None:
            lines.append(
                f"filter add dev {device} parent 1: protocol ip prio 1 u32 "
                f"match ip tos {dscp << 2:#x} 0xfc flowid {leaf}"
            )
    if verb == "add":
        # Nobody can send before it knows where to: address requests go first.
        lines.append(
            f"filter add dev {device} parent 1: protocol arp prio 2 u32 match u32 0 0 flowid 1:10"
        )
    return "\n".join(lines) + "\n"


def set_link(lab: Lab, host: str, rate: int) -> None:
    """Changes the rate of a host's link, in both directions, while it is used."""
    _shape(lab, host, rate, "change")


def set_up(lab: Lab, host: str, up: bool) -> None:
    """Cuts a host's link, or mends it; what travels meanwhile is lost, and nobody is told."""
    _ip(lab, SWITCH, f"link set {host} {'up' if up else 'down'}\n")


@dataclass(frozen=True)
class Traffic:
    """Bytes that a host has sent and received since the lab came up.

    Attributes:
        sent: by priority class, the highest first; as its own queue counted them.
        received: the same, as the switch's port counted them.
    """

    sent: list[int]
    received: list[int]

    def since(self, before: Traffic) -> Traffic:
        """Returns what came after another reading."""
        return Traffic(
            [now - then for now, then in zip(self.sent, before.sent, strict=True)],
            [now - then for now, then in zip(self.received, before.received, strict=True)],
        )


def read_traffic(lab: Lab) -> dict[str, Traffic]:
    """Returns each host's traffic, from the kernel's statistics of its queues."""
    return {
        host: Traffic(
            sent=_bytes_by_class(lab, host, "eth0"), received=_bytes_by_class(lab, SWITCH, host)
        )
        for host in lab.host_names
    }


def _bytes_by_class(lab: Lab, place: str, device: str) -> list[int]:
    tc = ["tc", "-netns", lab.namespace(place), "-statistics"]
    shown = _run([*tc, "class", "show", "dev", device])
    counted = dict(re.findall(r"^class htb (\S+) .*\n Sent (\d+) bytes", shown, re.MULTILINE))
    return [int(counted[f"1:{10 + number}"]) for number in range(lab.priorities)]


def exists(lab: Lab) -> bool:
    """Returns whether all of a lab's namespaces and the switch's ports are there."""
    hosts = [HEAD, *lab.host_names]
    if not {lab.namespace(place) for place in [SWITCH, *hosts]} <= _namespaces():
        return False
    shown = _run(["ip", "-netns", lab.namespace(SWITCH), "-oneline", "link"])
    return set(hosts) <= set(re.findall(r"^\d+: (\w+)@", shown, re.MULTILINE))


def _namespaces() -> set[str]:
    return {line.split()[0] for line in _run(["ip", "netns", "list"]).splitlines() if line}


def processes(lab: Lab) -> dict[int, str]:
    """Returns the processes in the lab's namespaces: process id → host."""
    spaces = _namespaces()
    found = {}
    for host in [HEAD, *lab.host_names]:
        if lab.namespace(host) in spaces:
            for line in _run(["ip", "netns", "pids", lab.namespace(host)]).split():
                found[int(line)] = host
    return found


def remove(lab: Lab) -> None:
    """Removes what there is of a lab's network; nothing there is no error."""
    spaces, hosts = _namespaces(), [HEAD, *lab.host_names]
    if lab.namespace(SWITCH) in spaces:
        # A namespace takes its devices with it, but later, or not while a process is in it.
        cut = "".join(f"link delete {host}\n" for host in hosts)
        _run(["ip", "-netns", lab.namespace(SWITCH), "-force", "-batch", "-"], cut, check=False)
    for place in [SWITCH, *hosts]:
        if lab.namespace(place) in spaces:
            _run(["ip", "netns", "delete", lab.namespace(place)])
        shutil.rmtree(_HOSTS_FILES / lab.namespace(place), ignore_errors=True)
