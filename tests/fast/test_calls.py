"""Functions of the native library that Python calls by name."""

from __future__ import annotations

import math
import struct
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trepak.ops.loader import call, load

BARRIER = "search_barrier"
ANSWER = {"waiting_time", "barrier_time", "iterations", "search_seconds"}


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


@settings(max_examples=100, deadline=None)
@example(-0.0)
@example(5e-324)
@example(0.1 + 0.2)
@given(st.floats(allow_nan=False, allow_infinity=False))
@pytest.mark.parametrize("made", [float, np.float64, lambda value: np.array(value)])
def test_numbers_survive_bit_for_bit(made, value: float) -> None:
    """Subnormal ones too, which TensorFlow's ops take for 0; the one worker's end comes back."""
    found = call(BARRIER, end_times=[[made(value)]], algorithm="zipline")
    assert bits(found["barrier_time"]) == bits(value)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for_arrives(wrong: float) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"ends at -?{abs(wrong)}, which must"):
        call(BARRIER, end_times=[[wrong]], algorithm="zipline")


def test_infinities_come_back() -> None:
    found = call(BARRIER, end_times=[[-1.7e308], [1.7e308]], algorithm="naive")
    assert found["waiting_time"] == math.inf


def test_text_stays_text() -> None:
    """What looks like an infinity, between quotes that look like an end of text."""
    label = 'a "NaN" \\" -Infinity {"number": "NaN"} \u00e4 \U0001f600 \x00'
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        call("add_variable", key=1, label=label, dtype="int8", elements=1)
    assert label.rstrip("\x00") in str(error.value)


def test_unknown_functions_are_named() -> None:
    with pytest.raises(tf.errors.NotFoundError, match="there is no function fly"):
        call("fly", high=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "naive"}, "search_barrier: end_times: .*'end_times' not found"),
        ({"algorithm": 3, "end_times": [[1.0]]}, "search_barrier: algorithm: .*must be string"),
        ({"algorithm": "naive", "end_times": [["1"]]}, "search_barrier: end_times: .*be number"),
        ({"algorithm": "naive", "end_times": [[1.0], [1.0, 2.0]]}, "end_times: must be a matrix"),
        ({"algorithm": "fastest", "end_times": [[1.0]]}, "there is no such algorithm"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(BARRIER, **arguments)


def test_numbers_that_are_too_small_are_named() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="layer: must be at least 1, is 0"):
        call("place_variable", key=1, layer=0, fully_connected=False)


@pytest.mark.parametrize("text", ["", "[]", "{", "NaN"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="the arguments of add_span are no"):
        load().trepak_call("add_span", text)


def test_functions_keep_the_classes_of_their_errors(tmp_path) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="trepak: .*4000000000"):
        call("place_variable", key=4_000_000_000, layer=1, fully_connected=False)
    with pytest.raises(tf.errors.UnknownError, match="trepak's flows: "):
        call("set_thresholds", thresholds=[0.1, 0.9])
    with pytest.raises(tf.errors.UnavailableError):
        path = str(tmp_path / "no" / "folder")
        call("open_timeline", path=path, rank=0, title="", about="{}", first_step=0, end_step=-1)


def test_the_secret_shows_in_no_error() -> None:
    job = {
        "rank": 0,
        "size": 1,
        "host": "",
        "deadline_milliseconds": 0,
        "encrypt": False,
        "dscp": [],
    }
    options, secret = {"job": job}, list(range(100, 131))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be 32 bytes") as error:
        call("open_session", system="no_system", session=1, options=options, secret=secret)
    assert "101" not in str(error.value)
    with pytest.raises(tf.errors.NotFoundError, match="there is no system no_system") as error:
        call("open_session", system="no_system", session=1, options=options, secret=[*secret, 131])
    assert "101" not in str(error.value)
    with pytest.raises(tf.errors.InvalidArgumentError, match="secret: ") as error:
        call("open_session", system="no_system", session=1, options={}, secret="hunter2")
    assert "hunter2" not in str(error.value)


def test_calls_run_at_once_while_a_function_is_traced(recwarn) -> None:
    found = []

    @tf.function
    def traced():
        found.append(call(BARRIER, end_times=[[3.0]], algorithm="zipline"))
        return tf.constant(1)

    traced()
    traced()
    assert [set(one) for one in found] == [ANSWER]
    assert found[0]["barrier_time"] == 3.0
    assert "trepak_call" not in str(traced.get_concrete_function().graph.as_graph_def())
    assert [str(w.message) for w in recwarn if "AutoGraph" in str(w.message)] == []


def test_other_threads_go_on_while_a_function_blocks() -> None:
    """A search of all combinations, of seconds, in another thread."""
    ends = np.cumsum(np.ones((9, 7)), axis=1)
    worker = threading.Thread(
        target=call, args=(BARRIER,), kwargs={"end_times": ends, "algorithm": "naive"}
    )
    turns = 0
    worker.start()
    while worker.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 20, "this thread has hardly had a turn, or the search is too short to show it"


@pytest.mark.parametrize("key", [-1, 2**32, 1.5, 1.0, True, 2**64, "1"])
def test_numbers_that_are_no_keys_are_refused(key: object) -> None:
    """None of them is cut, or taken for another one."""
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="key: must be a whole number in range"
    ):
        call("place_variable", key=key, layer=1, fully_connected=False)


def test_what_is_no_value_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="can't be given bytes"):
        call(BARRIER, end_times=b"1", algorithm="naive")


def test_a_function_has_one_name() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="are scalars"):
        load().trepak_call(["fly", "run"], "{}")


def test_calls_stay_in_this_process() -> None:
    with tf.device("/job:elsewhere/task:3"):
        assert call(BARRIER, end_times=[[3.0]], algorithm="zipline")["barrier_time"] == 3.0
