"""Hooks around one Keras model: their order, and that nothing stays of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from trepak.tf_plugins.model import keras_hooks
from trepak.tf_plugins.model.keras_changes import CHANGES
from trepak.tf_plugins.model.model_hooks import ORDER, ModelHook, attach, attached, detach

X, Y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")


def compiled() -> Any:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), loss="mse", jit_compile=False)
    return model


def noting(name: str, seen: list[str]) -> Callable[[Any, Any], Any]:
    def wrap(model: Any, plain: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return plain(*args, **kwargs)

        return call

    return wrap


@pytest.fixture(autouse=True)
def _installed() -> None:
    keras_hooks.install()


# Of all hooks there are too many orders; one hook's place depends on each other one alone.
@pytest.mark.parametrize("names", list(itertools.permutations(ORDER, 3)))
def test_hooks_act_in_one_order_and_leave_nothing(names: tuple[str, ...]) -> None:
    model, seen = compiled(), []  # type: ignore[var-annotated]
    model.train_on_batch(X, Y)
    model.predict(X, verbose=0)
    before = set(vars(model))
    for name in names:
        methods = {"predict": noting(f"{name} predicts", seen)}
        attach(model, ModelHook(name, methods, noting(f"{name} trains", seen)))
    model.train_on_batch(X, Y)
    model.predict(X, verbose=0)
    in_order = sorted(names, key=ORDER.index)
    inner = [f"{name} {does}" for does in ("trains", "predicts") for name in in_order]
    assert seen == inner
    seen.clear()
    model.make_train_function(force=True)  # as where Keras compiles anew
    model.train_on_batch(X, Y)
    assert seen == inner[: len(names)]
    seen.clear()
    for name in names:
        detach(model, name)
        assert not attached(model, name)
    model.train_on_batch(X, Y)
    model.predict(X, verbose=0)
    assert seen == []
    assert set(vars(model)) - before == {"_trepak_attached"}


def test_a_method_of_the_model_itself_comes_back() -> None:
    model, seen = compiled(), []  # type: ignore[var-annotated]
    model.predict = mine = lambda *args, **kwargs: "mine"
    attach(model, ModelHook("overlap", {"predict": noting("hook", seen)}))
    assert model.predict(X) == "mine" and seen == ["hook"]
    detach(model, "overlap")
    assert model.predict is mine


def test_a_hook_takes_the_place_of_one_of_its_name() -> None:
    model, seen = compiled(), []  # type: ignore[var-annotated]
    for text in ("first", "second"):
        attach(model, ModelHook("overlap", {"predict": noting(text, seen)}))
    model.predict(X, verbose=0)
    assert seen == ["second"]


def test_what_a_user_has_put_around_a_hook_stays() -> None:
    model, seen = compiled(), []  # type: ignore[var-annotated]
    attach(model, ModelHook("overlap", {"predict": noting("hook", seen)}))
    hooked = model.predict
    model.predict = functools.wraps(hooked)(noting("user", seen)(model, hooked))
    attach(model, ModelHook("lockstep", {"predict": noting("later", seen)}))
    model.predict(X, verbose=0)
    assert seen[0] == "later" and seen[-2:] == ["user", "hook"]


def test_a_train_function_that_is_not_made_anew_stays_the_same() -> None:
    model, seen = compiled(), []  # type: ignore[var-annotated]
    attach(model, ModelHook("overlap", train_function=noting("hook", seen)))
    model.make_train_function()
    traced = model.train_function
    model.make_train_function()
    assert model.train_function is traced


def test_a_model_that_makes_its_own_train_function_has_hooks_too() -> None:
    class Own(keras.Model):
        def make_train_function(self, force: bool = False) -> Any:
            self.train_function = lambda iterator: {"loss": 0.0}
            return self.train_function

    model, seen = Own(), []  # type: ignore[var-annotated]
    attach(model, ModelHook("lockstep", train_function=noting("hook", seen)))
    for _ in range(2):
        model.make_train_function(force=True)
        model.train_function(None)
    assert seen == ["hook", "hook"]


def test_other_models_see_nothing() -> None:
    hooked, other, seen = compiled(), compiled(), []  # type: ignore[var-annotated]
    attach(hooked, ModelHook("lockstep", train_function=noting("hook", seen)))
    other.train_on_batch(X, Y)
    assert seen == []


def test_changes_of_classes_have_reasons() -> None:
    changed = {f"{one.owner.__name__}.{one.method}" for one in CHANGES}
    assert {"TensorFlowTrainer.fit", "EpochIterator.__iter__"} <= changed
    assert all(one.why and one.seen for one in CHANGES)
