"""What is printed at start-up, in whatever order a program imports, and names of old modules."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys

import pytest

OLD_MODULES = ("compression", "functions", "mpi_ops", "sync_batch_norm", "util")
# What mpi_ops and util import for themselves, and how Horovod loads its own library.
INTERNAL = {
    *"MPI_LIB check_installed_version get_average_backwards_compatibility_fun".split(),
    *"get_ext_suffix num_rank_is_power_2 apply_op_to_not_none_tensors".split(),
}
# XLA logs at level INFO when it compiles for the first time.
PROGRAM = """
import sys
for module in sys.argv[1:]:
    __import__(module)
print("imported", file=sys.stderr, flush=True)
import tensorflow as tf
tf.function(lambda x: x * 2, jit_compile=True)(tf.ones(3))
"""


@pytest.mark.parametrize("order", ["trepak.keras keras", "keras trepak.keras", "tensorflow trepak"])
def test_tensorflow_is_quiet_whatever_comes_first(order: str) -> None:
    """What was printed before trepak came is all that there is."""
    environment = {n: v for n, v in os.environ.items() if n != "TF_CPP_MIN_LOG_LEVEL"}
    modules = [*order.split(), "trepak.horovod_ext"]
    command = [sys.executable, "-c", PROGRAM, *modules]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    before, _, after = done.stderr.partition("imported\n")
    assert done.returncode == 0 and after == "", done.stderr
    if order.startswith("trepak"):
        assert before == ""


@pytest.mark.parametrize("name", OLD_MODULES)
def test_names_of_old_submodules(name: str) -> None:
    theirs = importlib.import_module(f"horovod.tensorflow.{name}")
    ours = importlib.import_module(f"trepak.{name}")
    names = [n for n, v in vars(theirs).items() if n[0] != "_" and not inspect.ismodule(v)]
    if name != "mpi_ops":  # whose names come from elsewhere
        names = [
            n for n in names if getattr(getattr(theirs, n), "__module__", "") == theirs.__name__
        ]
    assert names
    assert [n for n in names if n not in INTERNAL and not hasattr(ours, n)] == []
    assert getattr(importlib.import_module("trepak"), name) is ours


def test_what_horovods_tests_ask_of_the_package() -> None:
    import trepak

    assert trepak._executing_eagerly()
    assert trepak.mpi_ops._basics is importlib.import_module("horovod.tensorflow.mpi_ops")._basics


def test_fit_is_the_same_before_and_after_a_callback_is_made() -> None:
    """Python looks `model.fit` up first: what is put in place later would miss that call."""
    program = """
import keras
import trepak.keras as hvd
fit = keras.Model.fit
hvd.callbacks.BroadcastGlobalVariablesCallback(0)
hvd.DistributedOptimizer(keras.optimizers.SGD())
assert keras.Model.fit is fit
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
