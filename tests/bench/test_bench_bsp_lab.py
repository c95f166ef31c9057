"""What the lab's part of `trepak bench bsp` makes of its measurements."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from trepak.scripts.bench import bsp_lab
from trepak.scripts.bench.exchanges import BSP, BSP_OVERLAP, GERYON, RAW_EACH, RAW_GROUPED
from trepak.scripts.bench.geryon_equations import LayerTimes, limit_seconds, tail_seconds
from trepak.scripts.report import Report

SECONDS = {RAW_GROUPED: 3.2, RAW_EACH: 2.1, BSP: 2.0, BSP_OVERLAP: 1.8, GERYON: 1.75}


def measured(seconds: float, stolen: float = 0.0) -> dict[str, Any]:
    return {"times": [9.0 * seconds, seconds, seconds], "idle": 0.5, "stolen": stolen}


def outcomes_of(kinds: list[str]) -> list[list[dict[str, Any]]]:
    """By rank: the second is a tenth faster; the last round is disturbed, and slow."""
    return [
        [
            {kind: measured(share * SECONDS[kind]) for kind in kinds},
            {kind: measured(99.0, stolen=0.2) for kind in kinds},
        ]
        for share in (1.0, 0.9)
    ]


def test_claims_are_medians_of_steps_that_nobody_disturbed() -> None:
    _, job = bsp_lab.jobs()[0]
    summary = bsp_lab.summarize([("vgg19_10g", job, outcomes_of([a.kind for a in job.methods]))])
    values = {name: claim.value for name, claim in summary.claims.items()}
    assert values["bsp.step_time_vs_raw_horovod.vgg19_10g"] == pytest.approx(2.0 / 2.1)
    # Emulated with S = 2, 32 samples take a K40 1.73 s; the links have less to do.
    assert values["bsp.fraction_of_limit.vgg19_10g"] == pytest.approx(1.733 / 1.8, abs=0.001)
    assert summary.claims["bsp.fraction_of_limit.vgg19_10g"].target == 0.93
    rows = {row["way"]: row for row in summary.rows}
    assert rows["limit: computing"]["step_ms"] == pytest.approx(1733, abs=1)
    assert rows["limit: communicating"]["step_ms"] == pytest.approx(1379, abs=1)
    assert rows["limit: computing and exposed tail"]["step_ms"] == pytest.approx(1957, abs=1)
    assert summary.idle_share == 0.5
    bsp_lab.draw(Report("bsp", {}, summary.rows), Figure())


def test_every_case_has_what_its_claim_compares() -> None:
    compared, overlapped = set(), set()
    for name, job in bsp_lab.jobs():
        kinds = {method.kind for method in job.methods}
        compared |= {name} if {RAW_EACH, RAW_GROUPED, BSP} <= kinds else set()
        overlapped |= {name} if {RAW_EACH, BSP_OVERLAP, GERYON} <= kinds else set()
        assert job.bits_per_second == round(job.gbit * 1e9 / (job.shrink * job.stretch))
        assert job.variables["HOROVOD_CYCLE_TIME"] == str(job.cycle_ms)
        fused = int(job.variables["HOROVOD_FUSION_THRESHOLD"])
        assert fused == round((job.fusion_mb or 0) * 2**20 / job.shrink)
    assert compared == {"vgg19_10g", "vgg19_1g", "resnet50_10g", "resnet50_1g"}
    assert overlapped == {"vgg19_10g", "resnet50_10g", "transformer_10g"}


def test_limits_of_three_layers() -> None:
    layers = [LayerTimes(1, 2, (1.0,)), LayerTimes(1, 2, ()), LayerTimes(1, 2, (2.0, 1.5))]
    assert limit_seconds(layers) == 9.0, "computing; communicating takes 9 as well"
    # The last layer's gradient is there after 5 s and takes 7, the first layer's 2 more.
    assert tail_seconds(layers) == 14.0


def test_where_no_lab_can_be_made_the_report_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def impossible(job: object) -> None:
        raise bsp_lab.LabError("a lab needs root")

    monkeypatch.setattr(bsp_lab, "run_job", impossible)
    summary = bsp_lab.measure(True, lambda text: None)
    assert [row["why"] for row in summary.rows] == ["a lab needs root"]
    assert not summary.claims
    with pytest.raises(bsp_lab.LabError, match="needs root"):
        list(bsp_lab.tune(lambda text: None))
