"""Hooks: what acts around one model's methods and its train function, several of them in order.

A hook wraps methods of one model object, not of its class, and may wrap the function that trains on
a batch, however often Keras makes it anew. Whatever order hooks are attached in, they act in that
of `ORDER`. Taken off, they leave the model as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Wrap = Callable[[Any, Callable[..., Any]], Callable[..., Any]]  # of a model, and what it stands for

# The outermost first: ranks agree on a batch before anything is done with it. Labels go around what
# looks embeddings up. Samples are counted where the step begins. A clock times what is inside of
# all that waits for others.
ORDER = ("lockstep", "fela", "overlap", "pipeline", "samples", "labels", "clock")
_ATTACHED = "_trepak_attached"


@dataclass(frozen=True)
class ModelHook:
    """What acts around a model.

    Attributes:
        name: one of `ORDER`.
        methods: by a method's name, what makes the function that stands in for it, of the model and
            the method as it was.
        train_function: makes the function that stands in for `model.train_function`, likewise.
        retraces: the training step that Keras has traced before does not hold any more.
        finish: does what it has left, before it is taken off.
        flush: gives all ranks what they have apart, where a callback looks; a collective call.
        lets_ahead: tells whether steps of some ranks go ahead of others', whose updates come later.
    """

    name: str
    methods: Mapping[str, Wrap] = field(default_factory=dict)
    train_function: Wrap | None = None
    retraces: bool = False
    finish: Callable[[], None] | None = None
    flush: Callable[[], None] | None = None
    lets_ahead: Callable[[], bool] | None = None

    def wraps(self) -> dict[str, Wrap]:
        """Returns the wrappers of methods; where Keras makes the train function, it is wrapped."""
        made = {} if self.train_function is None else {_MAKES: _making}
        return {**self.methods, **made}


@dataclass
class _Attached:
    """What a model has of hooks.

    Attributes:
        hooks: by name.
        methods: by name, each as it was, whether it was the model's own attribute, and its wrapper.
        train_function: as Keras has made it, and its wrapper.
    """

    hooks: dict[str, ModelHook] = field(default_factory=dict)
    methods: dict[str, tuple[Any, bool, Any]] = field(default_factory=dict)
    train_function: tuple[Any, Any] = (None, None)


def attached(model: Any, name: str) -> bool:
    """Tells whether a model has the hook of this name."""
    return name in vars(model).get(_ATTACHED, _Attached()).hooks


def goes_ahead(model: Any) -> bool:
    """Tells whether a rank may end a step of a model before its update is there."""
    hooks = vars(model).get(_ATTACHED, _Attached()).hooks.values()
    return any(hook.lets_ahead is not None and hook.lets_ahead() for hook in hooks)


def flush_hooks(model: Any) -> None:
    """Flushes what acts around a model; a collective call."""
    for hook in vars(model).get(_ATTACHED, _Attached()).hooks.values():
        if hook.flush is not None:
            hook.flush()


def attach(model: Any, hook: ModelHook) -> None:
    """Has a hook act around a model, in place of one of the same name."""
    # Keras would track what is set as an attribute.
    state = vars(model).setdefault(_ATTACHED, _Attached())
    before = state.hooks.get(hook.name, hook)
    if before is not hook and before.finish is not None:
        before.finish()
    state.hooks[hook.name] = hook
    _rewrap(model, state, {*before.wraps(), *hook.wraps()}, hook.retraces)


def detach(model: Any, name: str) -> None:
    """Takes a hook off a model, if it has it."""
    state = vars(model).get(_ATTACHED, _Attached())
    hook = state.hooks.get(name)
    if hook is not None:
        try:
            if hook.finish is not None:
                hook.finish()
        finally:
            del state.hooks[name]
            _rewrap(model, state, hook.wraps(), hook.retraces)


_MAKES = "make_train_function"


def _making(model: Any, make_train_function: Any) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        made = make_train_function(*args, **kwargs)
        state = vars(model)[_ATTACHED]
        if model.train_function is not state.train_function[1]:
            _wrap_train_function(model, state)
        return made

    return make


def _rewrap(model: Any, state: _Attached, names: Iterable[str], retraces: bool) -> None:
    own = vars(model)
    for name in names:
        plain, was_own, wrapped = state.methods.pop(name, (None, False, None))
        if plain is None or own.get(name) is not wrapped:  # a user has put another in its place
            plain, was_own = getattr(model, name), name in own
        own.pop(name, None)
        if was_own:
            own[name] = plain
        wrapped = plain
        for hook in _from_inside(state):
            wrap = hook.wraps().get(name)
            # However many hooks wrap the train function, it is wrapped where it is made once.
            if wrap is not None and (wrap is not _making or wrapped is plain):
                wrapped = functools.wraps(wrapped)(wrap(model, wrapped))
        if wrapped is not plain:
            state.methods[name] = plain, was_own, wrapped
            own[name] = wrapped
    if retraces:
        model.train_function = None
    _wrap_train_function(model, state)


def _wrap_train_function(model: Any, state: _Attached) -> None:
    plain, wrapped = state.train_function
    if model.train_function is not wrapped:
        plain = model.train_function
    wrapped = plain
    for hook in _from_inside(state):
        if plain is not None and hook.train_function is not None:
            wrapped = hook.train_function(model, wrapped)
    state.train_function = plain, wrapped
    model.train_function = wrapped


def _from_inside(state: _Attached) -> list[ModelHook]:
    return [state.hooks[name] for name in reversed(ORDER) if name in state.hooks]
