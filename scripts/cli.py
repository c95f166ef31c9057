"""The `trepak` command: examples, benches, and facts about the installation."""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import trepak
from trepak.scripts.dymem_plan import add_parser as add_dymem_parser
from trepak.scripts.elastic.commands import add_parser as add_elastic_parser
from trepak.scripts.entrance import MOST_PROCESSES, Parser, run_command, value, whole_number
from trepak.scripts.errors import InputError, check_writable
from trepak.scripts.examples.launch_ctr import add_parser as add_ctr_parser
from trepak.scripts.examples.launch_resnet import add_parser as add_resnet_parser
from trepak.scripts.lab.commands import add_parser as add_lab_parser

# A bench is a module of the package `bench` called bench_<name>, with SUMMARY (a line for --help),
# measure(Options) -> Report and, where a picture helps, draw(Report, matplotlib Figure).
_PREFIX = "bench_"
_PICTURES = (".png", ".pdf", ".svg")


def bench_names() -> list[str]:
    """Returns the names of all benches."""
    folder = Path(__file__).parent / "bench"
    modules = [m.name for m in pkgutil.iter_modules([str(folder)]) if m.name.startswith(_PREFIX)]
    names = [name.removeprefix(_PREFIX) for name in modules]
    return sorted(n for n in names if not n.endswith("_worker"))


def load_bench(name: str) -> ModuleType:
    """Returns the module of a bench.

    Raises:
        InputError: there is none of that name; the message lists those that exist.
    """
    names = bench_names()
    if name not in names:
        raise InputError(f"there is no bench {name!r}; there are: {', '.join(names)}.")
    return importlib.import_module(f"{__package__}.bench.{_PREFIX}{name}")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="trepak", description="Distributed training of Keras 3 models on Horovod.")
    parser.add_argument("--version", action="version", version=f"trepak {trepak.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    bench = commands.add_parser(
        "bench",
        help="measure trepak against its baselines",
        description="Measures ours and the baselines in one run. A full run exits with 1 if a "
        f"claim misses its target. Benches: {', '.join(bench_names())}.",
    )
    bench.add_argument("name", metavar="NAME", help=f"one of: {', '.join(bench_names())}")
    bench.add_argument("--quick", action="store_true", help="about a minute; judges nothing")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    bench.add_argument(
        "--png",
        type=value(_picture),
        metavar="FILE",
        help="draw here (default: beside the JSON file)",
    )
    np = whole_number(1, MOST_PROCESSES)
    bench.add_argument("--np", type=np, default=2, metavar="N", help="processes (default: 2)")
    bench.add_argument(
        "--kept",
        type=Path,
        metavar="FOLDER",
        help="trainings that were measured before, e.g. docs/results/rna; the rest is measured",
    )
    bench.add_argument(
        "--tune",
        action="store_true",
        help="search the best settings of raw Horovod, and measure nothing else (bsp)",
    )
    bench.add_argument(
        "--lab",
        action="store_true",
        help="measure in a lab what the usual run has no time for: how all models scale (sven), "
        "elastic jobs beside their projections (chicle), points of virtual time (fela)",
    )
    bench.set_defaults(run=_bench)
    doctor = commands.add_parser(
        "doctor",
        help="show versions, builds and settings",
        description="Shows what is installed and how it is set; exits with 1 if something that "
        "trepak needs is missing or wrong.",
    )
    doctor.set_defaults(run=_doctor)
    add_dymem_parser(commands)
    add_elastic_parser(commands)
    add_lab_parser(commands)
    top = commands.add_parser(
        "top",
        help="show live who makes whom wait",
        description="Shows the ranks of the jobs that run with a StragglerMonitor, live: those of "
        "this user on this machine, or the one that answers at an address.",
    )
    top.add_argument("--address", metavar="HOST:PORT", help="a StragglerMonitor's port")
    top.add_argument("--once", action="store_true", help="show once and end")
    top.set_defaults(run=_top)
    trace = commands.add_parser(
        "trace",
        help="merge the ranks' timelines",
        description="Works on the timelines that TREPAK_TIMELINE or a TimelineCallback wrote.",
    )
    actions = trace.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    merge = actions.add_parser("merge", help="make one file of all ranks', on a common clock")
    merge.add_argument("folder", type=Path, metavar="FOLDER", help="holds rank-0.json and so on")
    merge.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="(default: FOLDER/merged.json)"
    )
    merge.add_argument(
        "--steps", type=value(_steps), default=":", metavar="A:B", help="keep steps A to B - 1"
    )
    merge.set_defaults(run=_merge)
    train = commands.add_parser(
        "train", help="train an example", description="Trains an example from one command."
    )
    examples = train.add_subparsers(
        title="examples", dest="example", metavar="EXAMPLE", required=True
    )
    add_ctr_parser(examples)
    add_resnet_parser(examples)
    return parser


def _picture(text: str) -> Path:
    if Path(text).suffix not in _PICTURES:
        raise ValueError(f"{text!r} must end with {', '.join(_PICTURES)}.")
    return Path(text)


def _steps(text: str) -> tuple[int, int | None]:
    from trepak.ops.timeline import parse_steps

    return parse_steps(text)


def _bench(options: argparse.Namespace) -> int:
    from trepak.scripts.report import Options, conclude

    bench = load_bench(options.name)
    if options.kept and not options.kept.is_dir():
        raise InputError(f"--kept: there is no folder {options.kept}.")
    if options.kept and not getattr(bench, "KEEPS", False):
        raise InputError(f"the bench {options.name} keeps no trainings: leave --kept out.")
    if options.tune and not getattr(bench, "TUNES", False):
        raise InputError(f"the bench {options.name} has nothing to tune: leave --tune out.")
    if options.lab and not getattr(bench, "SCALES", False):
        raise InputError(f"the bench {options.name} has nothing to scale: leave --lab out.")
    if options.lab and options.quick:
        raise InputError("--lab takes minutes: leave --quick out, or --lab.")
    check_writable(options.json)
    png = options.png or (options.json and options.json.with_suffix(".png"))
    check_writable(png)
    chosen = Options(options.np, options.quick, options.kept, options.tune, options.lab)
    report = bench.measure(chosen)
    status = conclude(report, chosen, options.json)
    if png and hasattr(bench, "draw") and not options.tune:
        print(f"PNG: {_draw(bench, report, png)}")
    return status


def _draw(bench: ModuleType, report: Any, path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=150, layout="constrained")
    bench.draw(report, figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _doctor(options: argparse.Namespace) -> int:
    from trepak.scripts.doctor import examine

    return examine()


def _merge(options: argparse.Namespace) -> int:
    from trepak.scripts import trace

    output = options.output or options.folder / "merged.json"
    traces = trace.merge(options.folder, output, options.steps)
    steps = len(traces[0].endings())
    print(f"Merged {len(traces)} ranks, {steps} steps: {output}")
    print("Open it at https://ui.perfetto.dev or chrome://tracing.")
    return 0


def _top(options: argparse.Namespace) -> int:
    from trepak.scripts.top import show

    return show(options.address, options.once)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    return run_command(functools.partial(_main, arguments))


def _main(arguments: list[str] | None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
