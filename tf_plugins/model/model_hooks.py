"""Hooks: what acts around one model's methods and its train function, several of them in order.

A hook wraps methods of one model object, not of its class, and may wrap the function that trains on
a batch, however often Keras makes it anew. Whatever order hooks are attached in, they act in that
of `ORDER`. Taken off, they leave the model as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Wrap = Callable[[Any, Callable[..., Any]], Callable[..., Any]]  # of a model, and what it stands for

# The outermost first: ranks agree on a batch before anything is done with it.
ORDER = ("lockstep", "overlap")
_HOOKS, _PLAIN = "_trepak_hooks", "_trepak_plain"


@dataclass(frozen=True)
class ModelHook:
    """What acts around a model.

    Attributes:
        name: one of `ORDER`.
        methods: by a method's name, what makes the function that stands in for it, of the model and
            the method as it was.
        train_function: makes the function that stands in for `model.train_function`, likewise.
        retraces: the training step that Keras has traced before does not hold any more.
    """

    name: str
    methods: Mapping[str, Wrap] = field(default_factory=dict)
    train_function: Wrap | None = None
    retraces: bool = False


def attached(model: Any, name: str) -> bool:
    """Tells whether a model has the hook of this name."""
    return name in vars(model).get(_HOOKS, {})


def attach(model: Any, hook: ModelHook) -> None:
    """Has a hook act around a model, in place of one of the same name."""
    _change(model, {**vars(model).get(_HOOKS, {}), hook.name: hook}, hook)


def detach(model: Any, name: str) -> None:
    """Takes a hook off a model, if it has it."""
    hooks = dict(vars(model).get(_HOOKS, {}))
    hook = hooks.pop(name, None)
    if hook is not None:
        _change(model, hooks, hook)


def wrap_train_function(model: Any) -> None:
    """Puts the hooks around a train function that Keras has made; `keras_hooks` calls it then."""
    function = model.train_function
    if function is None:
        return
    plain = wrapped = getattr(function, _PLAIN, function)
    for hook in _from_inside(vars(model).get(_HOOKS, {})):
        if hook.train_function is not None:
            wrapped = hook.train_function(model, wrapped)
    if wrapped is not plain:
        setattr(wrapped, _PLAIN, plain)
    if wrapped is not function:
        model.train_function = wrapped


def _change(model: Any, hooks: dict[str, ModelHook], changed: ModelHook) -> None:
    own = vars(model)  # Keras would track what is set as an attribute
    own[_HOOKS] = hooks
    for name in changed.methods:
        there = getattr(model, name)
        plain = getattr(there, _PLAIN, there)
        own.pop(name, None)
        # What the model had in its class' place stays; a method of its class is found without.
        if getattr(plain, "__func__", None) is not getattr(type(model), name, None):
            own[name] = plain
        wrapped = plain
        for hook in _from_inside(hooks):
            if name in hook.methods:
                wrapped = functools.wraps(wrapped)(hook.methods[name](model, wrapped))
        if wrapped is not plain:
            setattr(wrapped, _PLAIN, plain)
            own[name] = wrapped
    if changed.retraces:
        model.train_function = None
    wrap_train_function(model)


def _from_inside(hooks: Mapping[str, ModelHook]) -> list[ModelHook]:
    return [hooks[name] for name in reversed(ORDER) if name in hooks]
