"""What `trepak bench fela` stands on: layers, links, plans, iterations, bounds."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from test_lab import TREPAK

import trepak.tf_plugins  # noqa: F401  (imports TensorFlow quietly)
from trepak.models import profiles, zoo
from trepak.scripts.bench import bench_fela, fela_cases, fela_lab, fela_report, fela_scale
from trepak.scripts.bench.fela_baselines import WAYS, balanced, best
from trepak.scripts.bench.fela_bounds import bounds
from trepak.scripts.bench.fela_clock import LATENCY, RATE, Clock, Links, ring_bytes
from trepak.scripts.bench.fela_models import MEMORY, NETWORKS, STATE_COPIES
from trepak.scripts.bench.fela_setting import Setting, stage_seconds
from trepak.scripts.bench.fela_tasks import Plan
from trepak.scripts.bench.fela_trials import find_quickly, straggled
from trepak.scripts.bench.fela_virtual import Iteration

ROOT = Path(__file__).parents[2]
VGG, GOOGLENET = NETWORKS["vgg19"], NETWORKS["googlenet"]


def quietly(what: str) -> None:
    """Shows nothing."""


def test_layers_are_the_networks() -> None:
    assert sum(layer.parameters for layer in VGG.layers) == 143_667_240  # docs/results/bsp.md
    assert [len(one.layers) for one in VGG.sub_models] == [8, 8, 3]
    assert [len(one.layers) for one in GOOGLENET.sub_models] == [4, 5, 3]
    assert VGG.sub_models[0].output == 4 * 256 * 28 * 28
    assert GOOGLENET.sub_models[0].output == 4 * 480 * 16 * 16
    assert GOOGLENET.sub_models[1].output == 4 * 832 * 8 * 8


def test_thresholds_are_those_of_the_profile() -> None:
    profile = json.loads((ROOT / "tf_plugins/fela/k40.json").read_text())
    (by_layer,) = profile["devices"].values()
    k40 = profiles.load("k40")
    by_width = {int(width): one for width, one in k40.thresholds["conv"].items()}
    seen = set()
    for layer, threshold in by_layer.items():
        if size := re.match(r"Conv2D on (\d+)x", layer):
            seen.add(int(size[1]))
            assert by_width[int(size[1])] == threshold, layer
    assert seen == set(by_width)
    assert by_layer["Dense on 4096 float32: units=4096"] == k40.threshold("dense", 4096)
    assert by_layer["Dense on 1024 float32: units=10"] == k40.threshold("dense", 1024)


@pytest.mark.parametrize(
    ("name", "options"), [("vgg19", {}), ("googlenet", {"size": 32, "classes": 10})]
)
def test_emulated_networks_are_those_of_virtual_time(name: str, options: dict[str, int]) -> None:
    """Their times, their parameters, and what crosses the cuts."""
    shrink, network = 1000.0, NETWORKS[name]
    model = zoo.build(
        name, emulate="k40", shrink=shrink, activations=True, saturates=True, **options
    )
    layers = [layer for layer in model.layers if hasattr(layer, "overhead")]
    for batch in (1, 64):
        seconds = sum(1e-3 * one.milliseconds * (batch + one.overhead) for one in layers)
        assert seconds == pytest.approx(network.whole.forward(batch), rel=0.01)
    assert 4 * shrink * model.count_params() == pytest.approx(network.whole.bytes, rel=0.01)
    cuts = fela_lab.cuts_of(model)
    assert len(cuts) == len(network.cuts)
    for cut, part in zip(cuts, network.sub_models, strict=False):
        crossing = 4 * shrink * model.get_layer(cut).output.shape[-1]
        assert crossing == pytest.approx(part.output, rel=0.05)


def test_a_layer_is_nearly_as_fast_as_it_can_be_at_its_threshold() -> None:
    for network in NETWORKS.values():
        for layer in network.layers:
            greatest = 1 / (layer.seconds(2) - layer.seconds(1))
            rate = layer.threshold / layer.seconds(layer.threshold)
            assert rate == pytest.approx(0.95 * greatest)


def test_there_is_room_for_32_samples_of_vgg19_and_not_for_64() -> None:
    whole = VGG.whole
    for samples, fits in ((32, True), (64, False)):
        needed = samples * (whole.kept + whole.working) + STATE_COPIES * whole.bytes
        assert (needed <= MEMORY) is fits


def test_flows_share_links_evenly() -> None:
    clock, ends = Clock(), dict[str, float]()
    links = Links(clock, 3)

    def over(name: str) -> None:
        ends[name] = clock.now

    # Two out of worker 0; the one into worker 2 shares its way in with one out of worker 1.
    links.send(0, 1, RATE, partial(over, "0 to 1"))
    links.send(0, 2, RATE, partial(over, "0 to 2"))
    links.send(1, 2, RATE, partial(over, "1 to 2"))
    clock.run()
    assert ends == pytest.approx({"0 to 1": 2.0, "0 to 2": 2.0, "1 to 2": 2.0})
    clock, ends = Clock(), {}
    links = Links(clock, 3)
    links.send(0, 1, 2 * RATE, partial(over, "long"))
    links.send(0, 2, RATE, partial(over, "short"))  # half the rate each until it is over
    clock.run()
    assert ends == pytest.approx({"short": 2.0, "long": 3.0})


def test_a_ring_takes_its_bytes_and_its_steps() -> None:
    clock, ends = Clock(), list[float]()
    Links(clock, 4).reduce(range(4), RATE, lambda: ends.append(clock.now))
    clock.run()
    assert ends == pytest.approx([2 * 3 / 4 + 6 * LATENCY])
    assert ring_bytes(RATE, 1) == 0


def test_a_plan_waits_for_what_is_sent() -> None:
    plan = Plan(2)
    first = plan.compute(0, 1.0, {})
    plan.compute(0, 2.0, {}, priority=1)  # after what comes first
    second = plan.compute(1, 2.0, {first: RATE})
    plan.ring((0, 1), RATE, [second])
    assert plan.seconds() == pytest.approx(1 + LATENCY + 1 + 2 + 1 + 2 * LATENCY)
    assert plan.bound() <= plan.seconds()
    assert plan.seconds([3.0, 0.0]) == pytest.approx(3 + plan.seconds())


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("way", WAYS)
def test_no_baseline_is_faster_than_its_bound(way: str, network: str) -> None:
    for total in (64, 256):
        found = best(way, network, total)
        assert 0.5 * found.seconds < found.bound <= found.seconds * (1 + 1e-9)


def test_a_pipeline_is_balanced() -> None:
    parts = balanced(VGG.layers, 8, 4)
    assert sum(len(one.layers) for one in parts) == 19
    assert max(one.forward(4) for one in parts) < 0.25 * VGG.whole.forward(4)


def test_workers_that_are_alike_do_not_wait() -> None:
    """Each trains its own samples: times add up, and what is reduced last is SM-1."""
    setting = Setting("googlenet", 8 * 32, (1, 1, 1), 8)
    found = Iteration(setting).run()
    parts = GOOGLENET.sub_models
    computing = sum(stage_seconds(parts, stage, 32) for stage in range(1, 6))
    messages = 2 + 2 * 5  # a request and its answer, a report and its answer for each
    trained = [at for at, _ in found.reduced.values()]
    assert max(trained) == pytest.approx(computing + messages * LATENCY - LATENCY)
    assert found.seconds == max(at for _, at in found.reduced.values()) > max(trained)
    assert (found.counters["remote"], found.counters["helped"]) == (0, 0)
    assert Counter(one.worker for one in found.work) == dict.fromkeys(range(8), 5)


def test_what_is_kept_takes_room_until_it_goes_backward() -> None:
    """Two tokens of 16 samples at a time, or all eight, of which all are kept."""
    few, all_at_once = (
        Iteration(Setting("vgg19", 1024, weights, 8)).run().most_memory
        for weights in ((1, 2, 2), (1, 8, 8))
    )
    kept = VGG.sub_models[0].kept
    assert 32 * kept < few < MEMORY < 128 * kept < all_at_once


def test_others_train_what_a_sleeper_does_not() -> None:
    setting = Setting("googlenet", 256, (1, 1, 1), 8)
    plain = Iteration(setting).run()
    short, long = (Iteration(setting, (d, *[0.0] * 7)).run() for d in (5.0, 50.0))
    assert plain.seconds < short.seconds == long.seconds < 3 * plain.seconds
    assert not any(one.worker == 0 for one in long.work)
    holding = Iteration(setting, (5.0, *[0.0] * 7), holds=True).run()
    assert holding.seconds > 5


@st.composite
def cases(draw: st.DrawFn) -> tuple[Setting, tuple[float, ...], bool]:
    workers = draw(st.sampled_from([1, 2, 3, 8]))
    weights = draw(st.sampled_from(fela_cases.weight_cases()))
    network = draw(st.sampled_from(list(NETWORKS)))
    setting = Setting(
        network,
        draw(st.integers(workers, 200)),
        weights,
        draw(st.integers(1, workers)),
        workers,
        *(draw(st.booleans()) for _ in range(3)),
    )
    second = 3.0 if network == "vgg19" else 0.2
    delay = st.sampled_from([0.0, 0.0, 0.3 * second, second, 10 * second])
    delays = tuple(draw(st.lists(delay, min_size=workers, max_size=workers)))
    return setting, delays, draw(st.booleans())


@settings(max_examples=200, deadline=None)
@given(cases())
def test_no_iteration_is_faster_than_its_bounds(
    case: tuple[Setting, tuple[float, ...], bool],
) -> None:
    setting, delays, holds = case
    found = Iteration(setting, delays, holds).run()
    for name, bound in bounds(setting, found.work, delays, holds)._asdict().items():
        assert bound <= found.seconds * (1 + 1e-9), name
    samples = Counter[int]()
    for one in found.work:
        samples[one.stage] += one.samples
    assert samples == dict.fromkeys(range(1, 6), setting.total)
    assert Iteration(setting, delays, holds).run().seconds == found.seconds


def test_tuning_has_the_papers_cases() -> None:
    assert len(fela_cases.weight_cases()) == 10
    tried = fela_cases.tune("googlenet", 64)
    phases = Counter(one.phase for one in tried)
    assert (phases[1], phases[2]) == (10, 3) and phases[3] <= 9
    assert len({one.setting for one in tried}) == len(tried)
    chosen = fela_cases.best_of(tried)
    assert chosen.outcome.seconds <= fela_cases.best_of(tried, phases=2).outcome.seconds
    assert fela_cases.weight_cases(workers=2) == [(1, 1, 1), (1, 1, 2), (1, 2, 2)]


def test_scenarios_are_the_papers() -> None:
    one = fela_cases.round_robin(2.0)
    assert sum(one.values()) == 100 and set(map(sum, one)) == {2.0}
    many = fela_cases.by_chance(0.3, 6.0)
    asleep = sum(n * sum(pattern) / 6.0 for pattern, n in many.items())
    assert asleep / 800 == pytest.approx(0.3, abs=0.05)


def test_the_token_server_is_rehearsed() -> None:
    rows = fela_scale.measure(quick=True, show=quietly)
    assert {row["workers"] for row in rows} == {8}
    for row in rows:
        assert row["served_a_second"] > 0 and row["asked_a_second"] > 0
    setting = Setting("googlenet", 64, (1, 1, 1), 8)
    native = fela_scale.rehearse(setting)
    trained = max(at for at, _ in Iteration(setting).run().reduced.values())
    assert native["seconds"] == pytest.approx(trained)  # where no chunk moves, the same times


def test_claims_follow_from_cases() -> None:
    found = [find_quickly(network, 64, quietly) for network in NETWORKS]
    found[0].straggled.append(straggled(found[0], next(fela_cases.scenarios("vgg19"))))
    report = fela_report.summarize(found, fela_scale.measure(True, quietly), {})
    claims = report.claims
    one = found[0]
    speedup = one.seconds["DP"] / one.seconds["Fela"]
    assert claims["fela.speedup_vs_dp.vgg19.64"].value == speedup
    assert claims["fela.speedup_vs_dp.vgg19.64"].target == 1.05
    assert claims["fela.fraction_of_bound.vgg19.64"].value <= 1
    assert 0 < claims["fela.delay_reduction.round_robin.vgg19"].value < 1
    json.loads(report.to_json())
    figure = Figure()
    bench_fela.draw(report, figure)
    assert len(figure.axes) == 16


def test_quick_run_measures(tmp_path: Path) -> None:
    path = tmp_path / "fela.json"
    command = [TREPAK, "bench", "fela", "--quick", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    claims = json.loads(path.read_text())["claims"]
    assert claims["fela.fraction_of_bound.vgg19.64"]["value"] > 0.85
    assert path.with_suffix(".png").exists()
