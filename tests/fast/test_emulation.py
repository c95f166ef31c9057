"""`emulated_compute` and what slows it: times, order, gradients; and the delays' forms."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import tensorflow as tf
from undisturbed import undisturbed

from trepak.horovod_ext import step_probe
from trepak.horovod_ext.step_probe import mark_done, mark_ready, take_step_times
from trepak.ops import emulated_compute
from trepak.ops.injection import Delay, parse_delay, parse_slow
from trepak.ops.loader import call, load
from trepak.tf_plugins.model.tracing import if_true


@pytest.fixture(autouse=True)
def even() -> Iterator[None]:
    """Each test begins and ends with a rank that is like any other."""
    configure()
    yield
    configure()


def configure(slow: float = 1.0, delays: Sequence[Delay] = ()) -> None:
    dicts = [dataclasses.asdict(delay) for delay in delays]
    call("configure_injection", slow=slow, delays=dicts, seed=0, rank=0, size=1, kill_step=-1)


def milliseconds(function: Any, limit: float) -> float:
    """Returns the time of a call, if possible one below the limit."""

    def call() -> float:
        # Or it would be taken as queued ahead, and begin where the call before ended.
        time.sleep(0.005)
        began = time.perf_counter()
        function()
        return 1000 * (time.perf_counter() - began)

    function()
    return undisturbed(call, lambda took: took < limit)


@pytest.mark.parametrize("dtype", [tf.float32, tf.int64, tf.string])
def test_passes_any_tensor_on(dtype: Any) -> None:
    x = tf.cast([[1, 2], [3, 4]], dtype) if dtype != tf.string else tf.constant([["a", "b"]])
    tf.debugging.assert_equal(emulated_compute(x, 1.0), x)


def test_takes_its_time_and_no_cpu() -> None:
    process = psutil.Process()
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    assert 200 <= milliseconds(lambda: emulated_compute(tf.ones([4]), 200.0), 210) < 210
    cpu = sum(process.cpu_times()[:2]) - before
    assert cpu < 0.3 * (time.perf_counter() - began)


def test_pieces_of_a_process_come_one_after_the_other() -> None:
    @tf.function
    def branches(x: Any) -> Any:
        return tf.add_n([emulated_compute(x, 20.0) for _ in range(5)])

    assert 100 <= milliseconds(lambda: branches(tf.ones([4])), 110) < 110


def test_gradient_waits_its_own_time() -> None:
    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = emulated_compute(emulated_compute(x, 10.0), 20.0, backward_milliseconds=50.0)
            loss = tf.reduce_sum(3.0 * y)
        return loss, tape.gradient(loss, x)

    x = tf.constant([1.0, 2.0])
    tf.debugging.assert_equal(step(x)[1], [3.0, 3.0])
    assert 100 <= milliseconds(lambda: step(x), 110) < 110, "10 + 20 forward, 50 + 2 · 10 backward"


def test_time_may_depend_on_the_batch() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def layer(x: Any) -> Any:
        return emulated_compute(x, 5.0 * tf.cast(tf.shape(x)[0], tf.float32))

    assert 20 <= milliseconds(lambda: layer(tf.ones([4, 3])), 30) < 30
    assert 60 <= milliseconds(lambda: layer(tf.ones([12, 3])), 70) < 70


@pytest.mark.parametrize(
    ("value", "message"),
    [(-1.0, "at least 0"), (float("nan"), "at least 0"), (4e6, "under an hour")],
)
def test_impossible_times_are_refused(value: float, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        emulated_compute(tf.ones([2]), value)


def test_times_that_are_no_scalar_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be a scalar"):
        emulated_compute(tf.ones([2]), [1.0, 2.0])


def test_slow_rank_takes_longer() -> None:
    configure(slow=1.5)
    assert 30 <= milliseconds(lambda: emulated_compute(tf.ones([2]), 20.0), 36) < 36


def one_step() -> None:
    emulated_compute(tf.ones([2]), 20.0)
    load().trepak_step_ready()
    load().trepak_step_done()


def test_delay_comes_once_per_step() -> None:
    configure(delays=[Delay("probability", high=0.05, probability=1.0)])
    assert 70 <= milliseconds(one_step, 80) < 80


def test_marks_keep_nothing_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_probe, "_enabled", True)
    take_step_times()

    @tf.function
    def step(value: Any) -> Any:
        gradients, mark = mark_ready([value])
        mark_done([tf.identity(gradients[0])], mark)
        return emulated_compute(value, 1.0)

    graph = step.get_concrete_function(tf.ones([2])).graph
    computing, *_ = (op for op in graph.get_operations() if op.type == "TrepakEmulatedCompute")
    assert not computing.control_inputs
    step(tf.ones([2]))
    assert len(take_step_times()) == 1


def test_marks_of_two_optimizers_come_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_probe, "_enabled", True)
    take_step_times()

    @tf.function
    def step(value: Any) -> Any:
        first, mark = mark_ready([value])
        first = mark_done([emulated_compute(first[0], 20.0)], mark)
        second, mark = mark_ready([value])
        return first, mark_done([tf.identity(second[0])], mark)

    for _ in range(3):
        step(tf.ones([2]))
    times = take_step_times()
    assert len(times) == 6
    assert all(one.begin <= one.ready <= one.done for one in times)


def test_a_step_tells_only_at_its_end_whether_ranks_end_it_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_probe, "_enabled", True)
    take_step_times()

    @tf.function
    def step(value: Any, together: Any) -> None:
        gradients, mark = mark_ready([value])
        if_true(
            together,
            lambda: mark_done([emulated_compute(gradients[0], 1000.0)], mark),
            lambda: mark_done([], mark, at_own_pace=True),
        )

    for together in (True, False, True):
        step(tf.ones([2]), tf.constant(together))
    times = take_step_times()
    assert [one.at_own_pace for one in times] == [False, True, False]
    assert [one.done - one.ready >= 0.9 for one in times] == [True, False, True]


def test_step_times() -> None:
    take_step_times()
    for _ in range(3):
        time.sleep(0.02)
        load().trepak_step_ready()
        time.sleep(0.01)
        load().trepak_step_done()
    times = take_step_times()
    assert [one.step for one in times] == [0, 1, 2]
    for before, one in zip(times, times[1:], strict=False):
        assert one.begin == before.done
        assert one.ready - one.begin >= 0.02
        assert one.done - one.ready >= 0.01
    assert take_step_times() == []


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("uniform:0:50ms", Delay("uniform", 0.0, 0.05)),
        ("uniform:50:100ms", Delay("uniform", 0.05, 0.1)),
        ("uniform:1ms:0.5s", Delay("uniform", 0.001, 0.5)),
        ("round-robin:2", Delay("round-robin", high=2.0)),
        ("probability:0.1:6s", Delay("probability", high=6.0, probability=0.1)),
    ],
)
def test_delays(text: str, delay: Delay) -> None:
    parsed = parse_delay(text)
    assert parsed.kind == delay.kind
    assert [parsed.low, parsed.high, parsed.probability] == pytest.approx(
        [delay.low, delay.high, delay.probability]
    )


@pytest.mark.parametrize("text", ["", "uniform", "uniform:1", "round-robin:x", "probability:1:-2"])
def test_delays_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="Write uniform:LOW:HIGH"):
        parse_delay(text)


@pytest.mark.parametrize("text", ["0.9", "nan", "inf", "fast", "-2"])
def test_factors_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="number from 1 on"):
        parse_slow(text)


def test_first_use_in_a_graph_prints_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # AutoGraph reads the source from a file
    script.write_text(
        "import trepak\nimport tensorflow as tf\nfrom trepak.ops import emulated_compute\n"
        "print(tf.function(lambda x: emulated_compute(x, 1.0))(tf.ones([])).numpy())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=90)
    assert done.stdout.strip() == "1.0"
    assert "AutoGraph" not in done.stderr
