"""The networks that the papers measure, real or emulated, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from trepak.models import profiles
from trepak.models.alexnet import alexnet
from trepak.models.builder import Builder
from trepak.models.emulation import EmulatedBuilder
from trepak.models.googlenet import googlenet
from trepak.models.inception_v4 import inception_v4
from trepak.models.lstm import lstm
from trepak.models.resnet import resnet
from trepak.models.transformer import transformer
from trepak.models.vgg import vgg
from trepak.models.yolo import yolo

MODELS: dict[str, Callable[..., keras.Model]] = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    "inception_v4": inception_v4,
    "lstm": lstm,
    "resnet50": partial(resnet, depth=50),
    "resnet101": partial(resnet, depth=101),
    "resnet152": partial(resnet, depth=152),
    "transformer": transformer,
    "vgg16": partial(vgg, depth=16),
    "vgg19": partial(vgg, depth=19),
    "yolo": yolo,
}


def build(
    name: str,
    *,
    emulate: str | None = None,
    shrink: float = 1.0,
    stretch: float = 1.0,
    activations: bool = False,
    saturates: bool = False,
    **options: Any,
) -> keras.Model:
    """Returns a network.

    Args:
        name: a key of `MODELS`.
        emulate: name of a profile, e.g. "k40": the layers take that accelerator's time instead of
            computing; the model then takes inputs of one number per sample, and returns one.
        shrink: with `emulate`, divides every variable's size, to one element at least.
        stretch: with `emulate`, multiplies every layer's time: on links slower by shrink · stretch,
            computing and communicating keep their proportion.
        activations: with `emulate`, activations have their sizes, shrunk as variables are: for who
            sends them to other ranks. Inputs and outputs then have theirs, too.
        saturates: with `emulate`, small batches are slower, by the profile's threshold batch sizes.
        options: of the architecture, e.g. `classes`.

    Raises:
        ValueError: no such network or profile, what belongs to `emulate` without it, or a layer
            whose threshold batch size the profile does not have.
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; there are: {', '.join(MODELS)}.")
    if shrink < 1:
        raise ValueError(f"shrink divides the variables' sizes: it is at least 1, got {shrink}.")
    if stretch <= 0:
        raise ValueError(f"stretch multiplies the layers' times: it is above 0, got {stretch}.")
    if emulate is None:
        if shrink != 1 or stretch != 1 or activations or saturates:
            raise ValueError(
                "shrink, stretch, activations and saturates need emulate: they are of layers that "
                "only wait."
            )
        return MODELS[name](Builder(), **options)
    builder = EmulatedBuilder(profiles.load(emulate), shrink, stretch, activations, saturates)
    return MODELS[name](builder, **options)
