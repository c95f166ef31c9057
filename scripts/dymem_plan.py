"""`trepak dymem plan`: what memory and time a model's step will take, without training it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trepak.scripts.entrance import console, table_of, whole_number
from trepak.scripts.errors import InputError, check_regular, check_writable, reading
from trepak.scripts.light_import import light_import

if TYPE_CHECKING:
    from trepak.tf_plugins.memory.planning import InPool, Plan

_MIB = 1 << 20
_MOST_BATCH = 1 << 24
_ROWS = {"none": "without swaps", "dymem": "Dymem"}
_HOW = {"none": "without swaps", "dymem": "with Dymem"}


def add_parser(commands: Any) -> None:
    """Adds `dymem` and its subcommand to the parser of the command `trepak`."""
    dymem = commands.add_parser(
        "dymem",
        help="predict what trepak.Dymem does for a model",
        description="Works on a Keras model in a file.",
    )
    actions = dymem.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    plan = actions.add_parser(
        "plan",
        help="predict peak memory, step time and the smallest pool",
        description="Runs a few steps with small batches of zeros on this machine, and replays "
        "them at the batch asked for, without swaps and with Dymem's.",
    )
    plan.add_argument("model", type=Path, metavar="MODEL", help="what model.save wrote")
    plan.add_argument(
        "--batch", type=whole_number(1, _MOST_BATCH), required=True, metavar="N", help="samples"
    )
    plan.add_argument("--pool", metavar="SIZE", help="tell what happens in this pool, too")
    plan.add_argument(
        "--beyond",
        metavar="SIZE|FOLDER",
        help="where swapped tensors shall lie (default: in memory, as much as it takes)",
    )
    plan.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    plan.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    check_regular(options.model)
    check_writable(options.json)
    with console(stderr=True).status("loading TensorFlow") as status:
        from trepak.tf_plugins.memory.sizes import bytes_of, is_size

        folder, beyond = None, None
        try:
            pool = None if options.pool is None else bytes_of(options.pool, "--pool")
            if options.beyond is not None and is_size(options.beyond):
                beyond = bytes_of(options.beyond, "--beyond")
        except ValueError as error:
            raise InputError(str(error)) from error
        if options.beyond is not None and beyond is None:
            folder = Path(options.beyond)
            if not folder.is_dir():
                raise InputError(f"--beyond: there is no folder {folder}, and it is no size.")
        notes, plan = _planned(options, pool, folder, status.update)
    _print(plan, options, notes, str(folder.absolute()) if folder else beyond)
    if options.json is not None:
        told = {"model": str(options.model), "notes": notes, **dataclasses.asdict(plan)}
        options.json.write_text(json.dumps(told, indent=2))
        console().print(f"JSON: {options.json}", soft_wrap=True)
    return 0


def _planned(
    options: argparse.Namespace, pool: int | None, folder: Path | None, tell: Any
) -> tuple[list[str], Plan]:
    """Returns what a user has to know beside the plan, and the plan."""
    from trepak.tf_plugins.memory.replay import tracing_dymem

    tracing_dymem()  # before anything takes memory

    import tensorflow as tf

    from trepak.tf_plugins.memory.machine import measure_machine
    from trepak.tf_plugins.memory.planning import Planner

    tell("measuring this machine")
    machine = measure_machine(folder)
    tell(f"loading {options.model}")
    model, notes = _load(options.model)
    try:
        tell("tracing steps with small batches")
        planner = Planner(model, options.batch, machine)
        tell("timing steps")
        planner.time()
    except (ValueError, TypeError, tf.errors.OpError) as error:
        wrong = f"no step of this model can be planned: {_reason(error)}."
        raise InputError(f"{options.model}: {wrong}") from error
    tell("replaying")
    return notes, planner.plan(pool)


def _reason(error: Exception) -> str:
    """Returns the first line, of TensorFlow's and Keras's many."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _load(path: Path) -> tuple[Any, list[str]]:
    """Returns the model, compiled, and what was changed for that."""
    import keras

    remedy = "It must be a file that model.save wrote, with layers of Keras or registered ones."
    with reading(path, "a Keras model that can be loaded", remedy), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the optimizer's state, which no plan needs
        try:
            model = keras.saving.load_model(path)
        except (ValueError, TypeError) as error:
            raise ValueError(_reason(error)) from error
    notes = []
    if not model.compiled:
        model.compile("sgd", "mean_squared_error")
        notes.append("The model was not compiled: SGD and a mean squared error are planned.")
    elif model.jit_compile:
        notes.append(
            "The model was compiled for XLA, or left that open; Dymem needs "
            "model.compile(…, jit_compile=False)."
        )
    model.jit_compile = False
    return model, notes


def _print(plan: Plan, options: argparse.Namespace, notes: list[str], beyond: Any) -> None:
    out = console()
    for table in _tables(plan, options.model.name):
        out.print(table)
    for line in [*_lines(plan), *notes, *_advice(plan, beyond)]:
        out.print(line, soft_wrap=True)


def _tables(plan: Plan, name: str) -> Iterator[Any]:
    title = f"{name}: a step of {plan.batch} samples"
    columns = ("peak live", "occupied", "smallest pool", "step", "samples/s")
    table = table_of(title, "", *columns)
    for way in plan.ways:
        memory = (way.peak_live_bytes, way.peak_occupied_bytes, way.smallest_pool_bytes)
        table.add_row(_ROWS[way.policy], *map(_size, memory), *_step(plan, way.smallest))
    yield table
    given = {way.policy: way.given for way in plan.ways if way.given is not None}
    if given:
        pool = _size(given["dymem"].pool_bytes)
        table = table_of(f"in a pool of {pool}", "", "step", "samples/s")
        for policy, step in given.items():
            table.add_row(_ROWS[policy], *_step(plan, step))
        yield table


def _step(plan: Plan, step: InPool) -> tuple[str, str]:
    if step.seconds is None:
        return "does not fit", ""
    return _time(step.seconds), _rate(plan, step.seconds)


def _lines(plan: Plan) -> Iterator[str]:
    """Yields what explains the table."""
    for way in plan.ways:
        given = way.given
        if given is not None and not given.fits:
            yield (
                f"In {_size(given.pool_bytes)} it does not fit {_HOW[way.policy]}: "
                f"{given.failed_node or 'a tensor that stays'} finds no room for "
                f"{_size(given.failed_bytes)}."
            )
        elif given is not None and way.policy == "dymem" and not given.swaps:
            yield f"In {_size(given.pool_bytes)} Dymem lets all stay, as it fits."
    timed = sorted(plan.timed.items())
    yield (
        "Steps of "
        + " and ".join(f"{batch} samples took {_time(seconds)}" for batch, seconds in timed)
        + f"; by that line one of {plan.batch} takes {_time(plan.step_seconds)} without swaps."
    )
    yield (
        f"All sizes count {_size(plan.waiting_bytes)} of batches that fit's dataset has ready. "
        "Arrays that are given to fit lie in the pool, too: add their size."
    )
    if plan.left_alone:
        yield (
            f"Dymem leaves {plan.left_alone} alone: nothing in them is swapped, and what they take "
            "is planned as it was with small batches."
        )


def _advice(plan: Plan, beyond: Any) -> Iterator[str]:
    swapped = plan.ways[1].swapped_bytes
    needed = _whole(swapped + swapped // 16)  # rounded up per tensor, and for gaps
    if isinstance(beyond, int) and beyond < needed:
        yield (
            f"--beyond {_size(beyond)} is too little for the {_size(swapped)} that leave: what "
            "finds no room there stays in the pool."
        )
        beyond = None
    where = beyond if isinstance(beyond, str) else _text(beyond or needed)
    yield "The line to put at the top of the script:\n"
    yield f'    trepak.Dymem(pool="{_text(plan.pool_bytes)}", beyond="{where}")\n'
    more = plan.pool_bytes / plan.ways[1].smallest_pool_bytes - 1
    yield (
        f"This pool is the smallest one plus {more:.0%}: what replays occupy at most in which each "
        "layer takes up to 20% more or less time, so that copies end at other times and gaps lie "
        "elsewhere; and a 32nd of it, Dymem's beta."
    )
    step = plan.recommended.seconds
    if step is not None:
        yield f"A step takes {_time(step)} there: {_rate(plan, step)} samples/s."


def _rate(plan: Plan, seconds: float) -> str:
    rate = plan.batch / seconds
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def _whole(size: int) -> int:
    return max(1, math.ceil(size / _MIB)) * _MIB


def _text(size: int) -> str:
    """Returns a size as `Dymem` reads it, rounded up."""
    return f"{_whole(size) // _MIB}MiB"


def _size(size: int) -> str:
    told: str = light_import("trepak.tf_plugins.callbacks.memory_figures").format_bytes(size)
    return told


def _time(seconds: float) -> str:
    tables = light_import("trepak.tf_plugins.callbacks.straggler_tables")
    told: str = tables.format_seconds(seconds)
    return told
