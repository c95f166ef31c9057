"""What `trepak bench elastic_bsp` claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench.uneven.methods import ASP, HOROVOD, SSP, elastic_bsp
from trepak.scripts.report import Claim

_DEFAULT = elastic_bsp(15)  # what the claims are about

Row = Mapping[str, Any]


def _gap(name: str, of: Mapping[tuple[str, str], Row]) -> float:
    """Returns by how many points ElasticBSP's accuracy is below the best of the others'."""
    there = [of[name, method] for method in (HOROVOD, SSP, ASP) if (name, method) in of]
    best = max(row["final_accuracy"] for row in there)
    return float(100 * (best - of[name, _DEFAULT]["final_accuracy"]))


def claims_of(found: Sequence[Row], simulated: Sequence[Row]) -> dict[str, Claim]:
    """Returns what the bench claims: of all cases, the one that is worst for us."""
    of = {(row["case"], row["way"]): row for row in found}
    cases = dict.fromkeys(case for case, _ in of)
    names = [case for case in cases if {(case, HOROVOD), (case, _DEFAULT)} <= of.keys()]
    ours = [of[name, _DEFAULT] for name in names]
    claims: dict[str, Claim] = {}
    if ours:
        claims = {
            "elastic_bsp.time_to_accuracy_vs_bsp": Claim(
                min(row["time_to_accuracy"] for row in ours), "x", 1.3, "higher", emulated=True
            ),
            "elastic_bsp.fraction_of_bound": Claim(
                min(row["fraction_of_bound"] for row in ours), "share", 0.9, "higher", emulated=True
            ),
            "elastic_bsp.fraction_of_larger_bound": Claim(
                min(row["fraction_of_larger_bound"] for row in ours),
                "share",
                None,
                "higher",
                emulated=True,
            ),
            "elastic_bsp.final_accuracy_gap": Claim(
                max(_gap(name, of) for name in names), "points", 0.3, "lower", emulated=True
            ),
            "elastic_bsp.waiting_vs_bsp": Claim(
                max(row["waiting_vs_bsp"] for row in ours), "x", 0.2, "lower", emulated=True
            ),
            "elastic_bsp.scheduler_overhead": Claim(
                max(row["scheduler_share"] for row in found), "share", 0.01, "lower"
            ),
        }
    for error, claim, target in (
        ("error", "elastic_bsp.simulated_waiting_error", 0.1),
        (
            "error_with_another",
            "elastic_bsp.simulated_waiting_error_of_another_trial",
            None,
        ),
    ):
        errors = [
            abs(row[error])
            for row in simulated
            if row["way"] == _DEFAULT and row[error] is not None
        ]
        if errors:
            claims[claim] = Claim(max(errors), "share", target, "lower", emulated=True)
    return claims
