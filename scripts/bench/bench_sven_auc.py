"""`trepak bench sven_auc`: what Sven's staleness costs in AUC (thesis, Figures 6.5 and 6.8).

Which updates a look-up misses follows from the schedule, and not from clocks, so that one process
trains what many would; its AUCs come from `trepak.pipeline` itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.ranks import run_here
from trepak.scripts.bench.sven_study import ASYNCHRONOUS, PIPELINE, SYNCHRONOUS, Study
from trepak.scripts.entrance import console
from trepak.scripts.launcher import sharing
from trepak.scripts.report import Claims, Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "what the staleness of Sven's pipeline costs in AUC, beside asynchronous servers"

STALENESS, SERVERS = "pipeline of four stages, by batch size", "beside asynchronous servers"
_MODELS = ("deepfm", "wide_deep", "dcn")
_JUDGED, _SEEDS = 1024, 5
_OTHERS = (512, 2048, 4096, 8192)
_MOST_LOSS = 0.0011  # section 6.3.3, at 1024
# Of the synchronous rates, what the asynchronous servers are trained by; the best one counts.
_SERVERS_RATES = (0.25, 0.125, 0.0625)
_TIMEOUT = 400.0


def studies(quick: bool = False) -> list[Study]:
    """Returns what is trained."""
    both = (SYNCHRONOUS, PIPELINE)
    if quick:
        return [Study("wide_deep", _JUDGED, 0, both, samples=50_000, held_out=20_000)]
    return [
        *(Study("wide_deep", _JUDGED, seed, both) for seed in range(_SEEDS)),
        *(Study("wide_deep", batch, 0, both) for batch in _OTHERS),
        *(Study(model, _JUDGED, 0, both) for model in _MODELS if model != "wide_deep"),
        *(
            Study(model, _JUDGED, 0, (ASYNCHRONOUS,), rate=rate)
            for model in _MODELS
            for rate in _SERVERS_RATES
        ),
    ]


def measure(options: Options) -> Report:
    """Trains.

    Raises:
        JobError: a process failed.
    """
    surroundings = Surroundings()
    planned, rows = studies(options.quick), []
    with console(stderr=True).status("") as status:
        for number, study in enumerate(planned, 1):
            status.update(f"{number} of {len(planned)}: {study.model}, batches of {study.batch}")
            (found,) = run_here(1, "sven_auc_worker", study, _TIMEOUT, env=sharing(1))
            rows += found
    return summarize(rows, surroundings.environment("one process"))


def summarize(trained: Sequence[dict[str, Any]], environment: dict[str, Any]) -> Report:
    """Returns the report of trainings.

    Args:
        trained: what `sven_auc_worker` has written of them.
        environment: see `Surroundings`.
    """
    of: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in trained:
        key = row["model"], row["batch"], row["seed"], row["schedule"]
        of[key] = max(of.get(key, row), row, key=lambda one: float(one["auc"]))  # of the rates
    losses: dict[int, list[float]] = {}
    rows: list[dict[str, Any]] = []
    for (model, batch, seed, schedule), row in of.items():
        if model == "wide_deep" and schedule == PIPELINE:
            plain = of[model, batch, seed, SYNCHRONOUS]["auc"]
            losses.setdefault(batch, []).append(plain - row["auc"])
            rows.append(
                {
                    "kind": STALENESS,
                    "batch": batch,
                    "seed": seed,
                    "best_auc": row["best_auc"],
                    "synchronous": plain,
                    "pipeline": row["auc"],
                    "loss": plain - row["auc"],
                    "most_stale": row["most_stale"],
                }
            )
    rows += [
        {
            "kind": SERVERS,
            "model": model,
            "schedule": schedule,
            "most_stale": row["most_stale"],
            "rate": row["rate"],
            "auc": row["auc"],
            "to_synchronous": row["auc"] - of[model, batch, seed, SYNCHRONOUS]["auc"],
        }
        for (model, batch, seed, schedule), row in of.items()
        if (batch, seed) == (_JUDGED, 0)
    ]
    claims = Claims()
    judged = losses[_JUDGED]
    if len(judged) > 1:
        error = statistics.stdev(judged) / len(judged) ** 0.5
        rows.append(
            {
                "kind": f"loss of AUC at {_JUDGED}",
                "seeds": len(judged),
                "mean": statistics.mean(judged),
                "standard_error": error,
            }
        )
        claims.add(
            "sven.auc_loss_pipeline4",
            statistics.mean(judged),
            _MOST_LOSS + error,
            "lower",
            unit="",
            paper=_MOST_LOSS,
            emulated=False,
        )
    return Report("sven_auc", claims, rows, environment)


def draw(report: Report, figure: Any) -> None:
    """Draws the loss of AUC by batch size, Figure 6.8, and the AUCs of schedules, Figure 6.5."""
    figure.set_size_inches(10, 4)
    losses, schedules = figure.subplots(1, 2)
    stale = [row for row in report.rows if row["kind"] == STALENESS]
    losses.plot([row["batch"] for row in stale], [row["loss"] for row in stale], "o")
    plots.mark(losses, _MOST_LOSS)
    losses.set(xscale="log", xlabel="batch", ylabel="AUC lost by four stages; each seed")
    rows = [row for row in report.rows if row["kind"] == SERVERS]
    models = list(dict.fromkeys(row["model"] for row in rows))
    heights = {
        schedule: {row["model"]: row["auc"] for row in rows if row["schedule"] == schedule}
        for schedule in (SYNCHRONOUS, PIPELINE, ASYNCHRONOUS)
    }
    plots.bars(schedules, models, heights)
    schedules.set(ylabel="AUC, held out", ylim=(0.5, 0.85))
    schedules.legend(frameon=False)
