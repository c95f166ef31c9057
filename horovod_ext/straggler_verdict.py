"""What a table of stragglers says in words: how much was waiting, for whom, and which page helps.

The pages are those of README's table "When a job is slow".
"""

from __future__ import annotations

from collections.abc import Sequence

from trepak.horovod_ext.stragglers import (
    LEAST_SHARE,
    LEAST_STEPS,
    RankReport,
    StragglerTable,
    least_last,
)

_LEAST_EXCHANGING = 0.2  # share of the time in reductions from which on the network is worth a look
_MOST_NAMED = 4  # stragglers; a sentence with more is not read


def verdict_of(table: StragglerTable) -> str:
    """Returns the verdict: one line of some sentences."""
    reports = table.reports()
    if any(report.exchanged_seconds for report in reports):
        return _of_barriers(table, reports)
    if table.rounds_of(0) is not None:
        return _of_rounds(table, reports)
    if len(reports) == 1:
        return "There is one rank: it waits for nobody."
    if table.steps < LEAST_STEPS:
        return f"{table.steps} steps are too few to name a straggler."
    return " ".join(filter(None, [_of_waiting(table, reports), _of_network(table)]))


def _of_waiting(table: StragglerTable, reports: Sequence[RankReport]) -> str:
    share = table.waiting_share()
    stragglers = table.stragglers()
    if stragglers:
        return _of_the_same(table, stragglers)
    if share < LEAST_SHARE:
        return f"No rank made the others wait: {_percent(share)} of the time was waiting."
    worst = max(reports, key=lambda report: report.delayed_seconds)
    caused = table.caused_share([worst.rank])
    if caused >= least_last(1, len(reports)):
        return (
            f"{_percent(share)} of the time was waiting, {_percent(caused)} of it for one rank, "
            f"though not in every step: {_made_wait(table, worst)} A timeline shows what it did "
            "then: see docs/stragglers.md."
        )
    last = [report for report in reports if report.last_share > 0]
    often = max(reports, key=lambda report: report.last_share)
    return (
        f"{_percent(share)} of the time was waiting, by turns: {len(last)} of {len(reports)} ranks "
        "made the others wait, each the last in some of the steps; "
        f"{_place(often)} most often, in {_percent(often.last_share)}. See docs/rna.md."
    )


def _of_the_same(table: StragglerTable, stragglers: Sequence[RankReport]) -> str:
    caused = table.caused_share([report.rank for report in stragglers])
    count = len(stragglers)
    whom = "the same rank" if count == 1 else f"the same {count} ranks"
    named = " ".join(_made_wait(table, report) for report in stragglers[:_MOST_NAMED])
    more = f" So did {count - _MOST_NAMED} more." if count > _MOST_NAMED else ""
    return (
        f"{_percent(table.waiting_share())} of the time was waiting, {_percent(caused)} of it for "
        f"{whom}: {named}{more} See docs/elastic_bsp.md."
    )


def _made_wait(table: StragglerTable, report: RankReport) -> str:
    return (
        f"{_place(report)} made the others wait {report.delayed_seconds:.3g} s of "
        f"{table.total_seconds:.3g} s; it was the last in {_percent(report.last_share)} of the "
        "steps."
    )


def _of_network(table: StragglerTable) -> str:
    share = table.exchanging_share()
    if share < _LEAST_EXCHANGING:
        return ""
    return (
        f"Reducing gradients, with all ranks there, took {_percent(share)} of the time: if that is "
        "the network, see docs/geryon.md."
    )


def _of_barriers(table: StragglerTable, reports: Sequence[RankReport]) -> str:
    longest = max(reports, key=lambda report: report.waited_seconds)
    met = f"The ranks met at {longest.rounds} barriers. " if longest.rounds else ""
    error = max(report.prediction_error for report in reports)
    foreseen = f" Ends of steps were foreseen to {error:.2g} of a step." if error else ""
    times = sum(report.taken_out for report in reports)
    without = (
        f" Times that others went on without a rank, as it did not answer: {times}."
        if times
        else ""
    )
    return (
        f"{met}Rank {longest.rank} on {longest.host} waited longest for others: "
        f"{longest.waited_seconds:.3g} s of {table.total_seconds:.3g} s.{_on_average(table)}"
        f"{_page(table, 'docs/elastic_bsp.md')}{foreseen}{without}"
    )


def _of_rounds(table: StragglerTable, reports: Sequence[RankReport]) -> str:
    waited = f"{_on_average(table)}{_page(table, 'docs/rna.md')}"
    least = max(reports, key=lambda report: report.null_share)
    if least.null_share == 0:
        return f"Every rank brought something to every round.{waited}"
    return (
        f"Rank {least.rank} on {least.host} brought nothing to {least.null_share:.0%} of its "
        f"{least.rounds} rounds, the most of all; on average {least.contributors:.3g} ranks "
        f"brought something.{waited}"
    )


def _on_average(table: StragglerTable) -> str:
    return f" On average {_percent(table.waiting_share())} of a rank's time was waiting."


def _page(table: StragglerTable, page: str) -> str:
    return f" See {page}." if table.waiting_share() >= LEAST_SHARE else ""


def _place(report: RankReport) -> str:
    return f"rank {report.rank} on {report.host}"


def _percent(share: float) -> str:
    """Returns "33%"; of less than one percent, but something, "under 1%"."""
    return "under 1%" if 0 < share < 0.005 else f"{share:.0%}"
