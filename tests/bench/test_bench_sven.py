"""The benches of Sven: their arithmetic, and what they make of what was measured."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from trepak.models.click_features import feature_configs
from trepak.models.clicks import ClickStream, criteo_vocabularies
from trepak.models.dcn import dcn
from trepak.models.deepfm import deepfm
from trepak.models.wide_deep import wide_deep
from trepak.scripts.bench import bench_sven, bench_sven_auc, sven_arithmetic
from trepak.scripts.bench.memory_watch import MemoryWatch, allocated
from trepak.scripts.bench.sven_arithmetic import MODELS, Popularity, Step
from trepak.scripts.bench.sven_case import (
    EACH,
    FILE,
    HOT,
    MEMORY,
    PLAIN,
    RANDOM,
    READ_AHEAD,
    WHOLE,
    Case,
)
from trepak.scripts.bench.sven_report import TIERS, Measured, summarize
from trepak.scripts.bench.sven_steps import BESIDE, PIPELINES, SCALING
from trepak.scripts.bench.sven_study import ASYNCHRONOUS, PIPELINE, SYNCHRONOUS, Study
from trepak.scripts.report import Options

_WANTED = Popularity(rows=1000.0, hit_share=0.9)


@pytest.mark.parametrize("model", MODELS)
def test_the_arithmetic_has_the_models_parameters(model: str) -> None:
    from keras_rs.layers import DistributedEmbedding

    vocabularies = dict.fromkeys(criteo_vocabularies(), 10)
    configs = feature_configs(vocabularies, 16, 8, linear=model != "dcn")
    make: Any = {"deepfm": deepfm, "wide_deep": wide_deep, "dcn": dcn}[model]
    built = make(DistributedEmbedding(configs), vocabularies)
    tables = sum(
        config.table.vocabulary_size * config.table.embedding_dim for config in configs.values()
    )
    # What the arithmetic leaves out: the numerical features' own weights, a few hundred.
    dense = built.count_params() - tables
    assert 0 <= dense - sven_arithmetic.shape(model).parameters < 1000


def test_rows_of_a_batch_are_those_of_the_generator() -> None:
    found = sven_arithmetic.popularity(0.001)
    clicks = ClickStream(criteo_vocabularies(0.001))
    by_row = np.concatenate([clicks.probabilities(name) for name in clicks.vocabularies])
    independent = np.sum(1 - (1 - by_row) ** sven_arithmetic.BATCH)
    assert 0.8 * independent < found.rows < independent  # ids that come again are rows less
    hottest = np.sort(by_row)[::-1][: round(sven_arithmetic.ALPHA * len(by_row))]
    assert sven_arithmetic.ALPHA < found.hit_share < hottest.sum()  # of rows, and of look-ups


def test_equations_are_those_of_the_thesis() -> None:
    step = Step(1, 20, 30, 40, 2, 3, 5, 10, 4)
    assert step.sequential == 115
    assert step.without_ids == 114
    assert step.pipelined == max(2 + 5, 30) + max(10, 20) + max(40, 3) + 4
    assert step.alone == 24
    assert step.slowed(2).sequential == 230


def test_bytes_travel_between_ranks_only() -> None:
    two, eight = (sven_arithmetic.step("dcn", ranks, _WANTED) for ranks in (2, 8))
    assert eight.rows / two.rows == pytest.approx((7 / 8) / (1 / 2))
    assert sven_arithmetic.step("dcn", 1, _WANTED).sequential == pytest.approx(
        sven_arithmetic.step("dcn", 1, _WANTED).alone
    )


def _rows(case: Case, factor: float) -> list[dict[str, Any]]:
    """Returns what a rank would write; four stages need 1.5 times the memory of none."""
    times = {0: case.times.sequential, 1: case.times.without_ids, 4: case.times.pipelined}
    return [
        {
            "model": case.model,
            "stages": one.stages,
            "readers": one.readers,
            "rounds": [
                {
                    "step_s": factor * times[one.stages],
                    "sent_bytes": 1000,
                    "between_bytes": 70_000 if one == PLAIN else 71_500,
                    "most_bytes": 100_000 if one == WHOLE else 90_000,
                    "idle": 0.5,
                    "stolen": 0.0,
                }
            ],
            "held_bytes": 2000,
        }
        for one in case.pipelines
    ]


def _measured(factor: float) -> Measured:
    """Returns what ranks would write whose steps take the equations' times, and some more."""
    cases = {hosts: [bench_sven.case("wide_deep", hosts, _WANTED)] for hosts in (2, 8)}
    ours = {hosts: [_rows(case, factor)] * hosts for hosts, (case,) in cases.items()}
    step = 2 * cases[8][0].times.pipelined
    theirs = [{"model": "wide_deep", "step_s": step, "idle": 0.5, "stolen": 0.0}]
    hits = {MEMORY: 1.0, FILE: 0.0, RANDOM: 0.1, HOT: 0.8}
    placements = [
        {
            "placement": name,
            "seconds": [0.01 + 0.1 * (1 - hit)],
            "hit_share": hit,
            "rows": 10,
            "disk_bytes": 1e6 * (1 - hit),
        }
        for name, hit in hits.items()
    ]
    beside = bench_sven.case("wide_deep", 8, _WANTED, pipelines=(PLAIN, READ_AHEAD, WHOLE))
    return Measured(cases, ours, theirs, placements, [(beside, [_rows(beside, factor)] * 8)])


def test_steps_are_judged_by_the_equations() -> None:
    report = summarize(_measured(1.25), {})
    values = {name: claim.value for name, claim in report.claims.items()}
    assert values["sven.fraction_of_limit"] == pytest.approx(0.8)
    assert report.missed() == ["sven.fraction_of_limit"]
    assert values["sven.speedup_vs_tf_parameter_server.wide_deep"] == pytest.approx(2 / 1.25)
    assert values["sven.hot_placement_of_bound"] == pytest.approx(1.0)
    assert values["sven.pipeline_memory_of_plain"] == pytest.approx(1.5)
    assert values["sven.pipeline_waiting_of_exchange"] == pytest.approx(1.5)
    plain, ahead, _ = (row for row in report.rows if row["kind"] == BESIDE)
    latency = ahead["equation_ms"] / plain["equation_ms"]
    assert values["sven.pipeline1_latency.wide_deep"] == pytest.approx(latency)
    of_eight = next(row for row in report.rows if row["kind"] == SCALING and row["hosts"] == 8)
    assert of_eight["scaling_factor"] == pytest.approx(of_eight["of_equation"] / 1.25)
    assert {row["kind"] for row in report.rows} >= {PIPELINES, SCALING, TIERS}
    assert not summarize(_measured(1.05), {}).missed()


def test_a_bench_of_two_hosts_alone_is_a_report() -> None:
    measured = _measured(1.0)
    alone = dataclasses.replace(
        measured,
        cases={8: measured.cases[8]},
        ours={8: measured.ours[8]},
        theirs=[],
        placements=[],
        beside=(),
    )
    assert "sven.pipeline4_speedup.wide_deep" in summarize(alone, {}).claims


def test_all_models_scale_with_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(hosts: int, cases: list[Case], rounds: int, watches_memory: bool = False) -> Any:
        assert (rounds > 1) != watches_memory
        return [[row for case in cases for row in _rows(case, 1.25)]] * hosts

    monkeypatch.setattr(bench_sven, "_lab", contextlib.nullcontext)
    monkeypatch.setattr(bench_sven, "_run", run)
    report = bench_sven.measure(Options(lab=True))
    assert report.missed() == ["sven.fraction_of_limit"]
    assert {"sven.pipeline1_latency.wide_deep", "sven.pipeline1_latency.dcn"} <= {*report.claims}
    found = [(row["model"], row["hosts"]) for row in report.rows if row["kind"] == SCALING]
    assert found == [(model, hosts) for model in MODELS for hosts in (2, 4, 8)]
    for row in report.rows:
        if row["kind"] == SCALING:
            assert row["scaling_factor"] == pytest.approx(row["of_equation"] / 1.25)
    figure = Figure()
    bench_sven.draw(report, figure)
    (steps, scaling) = figure.axes
    assert len(scaling.lines) == 2 * len(MODELS)
    assert len(steps.patches) == len(MODELS)


def test_a_whole_run_is_drawn() -> None:
    figure = Figure()
    bench_sven.draw(summarize(_measured(1.25), {}), figure)
    (steps, scaling, tiers) = figure.axes
    assert len(steps.patches) == len(EACH) + 1, "and TensorFlow's servers"
    assert len(scaling.lines) == 2
    assert len(tiers.patches) == 4


def test_memory_that_is_allocated_is_watched() -> None:
    watch = MemoryWatch()
    watch.start()
    held = np.ones(1 << 22)
    deadline = time.monotonic() + 30
    while watch.most < allocated() and time.monotonic() < deadline:
        time.sleep(0.01)
    del held
    watch.stop()
    assert 8 << 22 <= watch.most - allocated() < 9 << 22


def test_a_loss_of_auc_is_judged_beyond_its_error() -> None:
    losses = [0.001, 0.002, 0.003]
    rows = [
        {
            "model": "wide_deep",
            "batch": 1024,
            "seed": seed,
            "schedule": schedule,
            "rate": 1.0,
            "auc": 0.8 - (loss if schedule == PIPELINE else 0.0),
            "best_auc": 0.82,
            "most_stale": 2,
        }
        for seed, loss in enumerate(losses)
        for schedule in (SYNCHRONOUS, PIPELINE)
    ]
    (claim,) = bench_sven_auc.summarize(rows, {}).claims.values()
    assert claim.value == pytest.approx(0.002)
    assert claim.target == pytest.approx(0.0011 + 0.001 / 3**0.5)
    assert not claim.met


def test_one_asynchronous_worker_trains_as_one_process_does(tmp_path: Any) -> None:
    from trepak.scripts.bench.ranks import run_here

    schedules = (SYNCHRONOUS, ASYNCHRONOUS)
    study = Study("dcn", 64, 0, schedules, samples=640, held_out=1000, workers=1)
    ((plain, asynchronous),) = run_here(1, "sven_auc_worker", study, 120)
    assert plain["auc"] == asynchronous["auc"]
    assert asynchronous["most_stale"] == 0
