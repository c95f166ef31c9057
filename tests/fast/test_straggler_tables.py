"""The monitor's tables: 80 columns hold every header and every number whole."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any

import pytest
from rich.console import Console

from trepak.horovod_ext.stragglers import RankReport
from trepak.tf_plugins.callbacks.straggler_tables import RankTable, format_count, format_seconds

HOSTS = {
    "short": "w{}",
    "pods": "trainer-job-abcdef-worker-{}",
    "clouds": "ip-10-213-144-{}.eu-central-1.compute.internal.example.org.and.more",
    "markup": "[/x]{}",
}
EACH = {"compute_seconds": 12.3, "waited_seconds": 1.54, "delayed_seconds": 0.5, "last_share": 0.3}
ROUNDS = {"rounds": 1234, "contributors": 3.21, "null_share": 0.12, "staleness": 1.46, "dropped": 7}
KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "BSP": (
        EACH,
        ["computed", "waited", "for rank", "made others wait", "last in"],
    ),
    "RNA": (
        EACH | ROUNDS,
        ["steps", "computed", "waited", "rounds", "ranks in one", "null", "staleness", "dropped"],
    ),
    "not finite": (
        EACH | ROUNDS | {"not_finite": 3},
        ["computed", "ranks in one", "staleness", "dropped", "not finite"],
    ),
    "ElasticBSP": (
        EACH | {"rounds": 17, "exchanged_seconds": 3.25, "not_finite": 12},
        ["steps", "computed", "waited", "exchanged", "barriers", "not finite"],
    ),
}
LARGE = {
    "steps": 987_654_321,
    "compute_seconds": 8.64e7,
    "waited_seconds": 123_456.7,
    "delayed_seconds": 9_999.4,
    "rounds": 123_456_789,
    "contributors": 63.75,
    "staleness": 98_765.4,
    "dropped": 9_876_543,
    "exchanged_seconds": 3_333_333.0,
    "not_finite": 45_678,
}


def printed(ranks: list[dict[str, Any]], width: int = 80) -> str:
    stream = io.StringIO()
    title = "python train.py " + "--option " * 20
    Console(file=stream, width=width).print(RankTable(ranks, title, 100.0))
    return stream.getvalue()


def report(rank: int, host: str, figures: dict[str, Any]) -> dict[str, Any]:
    known = {"steps": 300, "compute_seconds": 0.0, "waited_seconds": 0.0, "waited_for": rank}
    known |= {"delayed_seconds": 0.0, "last_share": 0.0}
    return dataclasses.asdict(RankReport(rank=rank, host=host, **known | figures))


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("n", [2, 4, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_it_fits_and_nothing_is_cut(kind: str, n: int, host: str, large: bool) -> None:
    figures, headers = KINDS[kind]
    if large:
        figures = figures | {name: LARGE[name] for name in LARGE if name in {**figures, "steps": 0}}
    ranks = [report(rank, HOSTS[host].format(rank), figures) for rank in range(n)]
    text = printed(ranks)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if re.match("rank ", line)]
    for header in ["rank", "host", *headers]:
        assert any(re.search(rf"(^| ){header}( |$)", head) for head in heads), (header, text)
    cells = [format_seconds(v) for name, v in figures.items() if name.endswith("_seconds")]
    if kind == "BSP":
        cells.append("30%")
    else:
        cells = [cell for cell in cells if cell != format_seconds(figures["delayed_seconds"])]
        cells.append(format_count(figures.get("steps", 300)))
        cells += [
            format_count(figures[name]) for name in ("rounds", "not_finite") if name in figures
        ]
    for rank in range(n):
        rows = " ".join(line for line in lines if re.match(rf" *{rank} ", line)) + " "
        assert all(f" {cell} " in rows for cell in cells), (cells, text)
    if host == "short":
        assert f" w{n - 1} " in text
    assert "…" not in "".join(heads)


def test_a_wide_terminal_shows_one_block() -> None:
    ranks = [report(0, HOSTS["pods"], EACH | ROUNDS | LARGE | {"exchanged_seconds": 0.0})]
    assert len(printed(ranks, 80).split("\n\n")) == 2
    assert len(printed(ranks, 160).split("\n\n")) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (41.23, "41.2 s"),
        (1234.5, "1234 s"),
        (9999.6, "2.78 h"),
        (100_000.0, "27.8 h"),
        (8.64e7, "1000 d"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (9_999_999, "9999999"), (12_345_678, "12.3M"), (4.2e9, "4.2G")]
)
def test_counts(count: float, text: str) -> None:
    assert format_count(count) == text
