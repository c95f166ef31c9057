"""`trepak bench sven`: pipelines, placement and TensorFlow's servers on models of clicks.

The thesis' Figures 6.4 and 6.7, Tables 6.3 and 6.4. Stage times come from `sven_arithmetic`; its
AUCs, Figures 6.5 and 6.8, are `trepak bench sven_auc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trepak.scripts.bench import sven_arithmetic as arithmetic
from trepak.scripts.bench import tf_cluster
from trepak.scripts.bench.ranks import lab_of, run_here, run_in
from trepak.scripts.bench.sven_case import ARMS, EACH, PLAIN, READ_AHEAD, WHOLE, Arm, Case, Pipeline
from trepak.scripts.bench.sven_figures import draw
from trepak.scripts.bench.sven_report import Measured, summarize
from trepak.scripts.entrance import console
from trepak.scripts.report import Options, Report
from trepak.scripts.surroundings import Surroundings

__all__ = ["SUMMARY", "draw", "measure"]

SUMMARY = "Sven's pipelines and placement on models of clicks, beside TensorFlow's servers"
SCALES = True

# How many times slower than the cluster: a step of eight ranks costs two cores some 50 ms, whatever
# it computes and sends.
_SLOWER = 3000.0
_ROUNDS = 2
# With oneDNN, which nothing here computes with, TensorFlow keeps memory that it has freed, which a
# watch of memory would count.
_NO_POOL = {"TF_ENABLE_ONEDNN_OPTS": "0"}
_HOSTS, _FEWER_HOSTS = 8, (2, 4)
_WATCHED = "deepfm"  # the others by `--lab`
_SCALED = "wide_deep"  # of Figure 6.4: what the thesis scales worst; `--lab` scales all
_TIMEOUT = 900.0


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    with console(stderr=True).status("") as status:
        part = _quick if options.quick else _scaled if options.lab else _whole
        measured = part(status.update)
    return summarize(measured, surroundings.environment("trepak lab run --gloo; horovodrun --mpi"))


def _quick(say: Callable[[str], None]) -> Measured:
    say("2 hosts")
    with _lab(2) as lab:
        cases = [case("deepfm", 2, steps=3, pipelines=(PLAIN, WHOLE))]
        return Measured({2: cases}, {2: _run(lab, cases, rounds=1)})


def _scaled(say: Callable[[str], None]) -> Measured:
    """Measures how each model scales (Figure 6.4), and beside that what `_whole` has of one."""
    by_hosts, ours, beside = {}, {}, []
    for hosts in (*_FEWER_HOSTS, _HOSTS):
        say(f"{hosts} hosts, links of {arithmetic.link_rate(_SLOWER) / 1e6:.0f} Mbit/s")
        by_hosts[hosts] = [case(model, hosts, pipelines=(WHOLE,)) for model in arithmetic.MODELS]
        with _lab(hosts) as lab:
            ours[hosts] = _run(lab, by_hosts[hosts], _ROUNDS)
            if hosts == _HOSTS:
                models = [model for model in arithmetic.MODELS if model != _WATCHED]
                beside = [_beside(lab, model, say) for model in models]
    return Measured(by_hosts, ours, beside=beside)


def _whole(say: Callable[[str], None]) -> Measured:
    by_hosts = {_HOSTS: [case(model, _HOSTS) for model in arithmetic.MODELS]}
    for hosts in _FEWER_HOSTS:
        by_hosts[hosts] = [case(_SCALED, hosts, pipelines=(WHOLE,))]
    ours = {}
    for hosts, cases in by_hosts.items():
        say(f"{hosts} hosts, links of {arithmetic.link_rate(_SLOWER) / 1e6:.0f} Mbit/s")
        with _lab(hosts) as lab:
            ours[hosts] = _run(lab, cases, _ROUNDS if hosts == _HOSTS else 1)
            if hosts == _HOSTS:
                say("TensorFlow's parameter servers")
                spec = {"cases": cases, "rounds": _ROUNDS}
                theirs = tf_cluster.run(lab, "sven_tf_servers", spec)
                beside = _beside(lab, _WATCHED, say)
    return Measured(by_hosts, ours, theirs, _placements(say), [beside])


def _beside(lab: Any, model: str, say: Callable[[str], None]) -> tuple[Case, Any]:
    """Measures apart what would take CPU from steps that are judged; readers end with their job."""
    say(f"{model} with a reader, and its memory")
    planned = case(model, _HOSTS, steps=3, pipelines=(PLAIN, READ_AHEAD, WHOLE))
    return planned, _run(lab, [planned], rounds=1, watches_memory=True)


def _run(lab: Any, cases: Sequence[Case], rounds: int, watches_memory: bool = False) -> Any:
    spec = {"cases": cases, "rounds": rounds, "watches_memory": watches_memory}
    variables = _NO_POOL if watches_memory else None
    return run_in(lab, "bench_sven_worker", spec, _TIMEOUT, variables)[0]


def _lab(hosts: int) -> Any:
    return lab_of(hosts, arithmetic.link_rate(_SLOWER))


def case(
    model: str,
    hosts: int,
    wanted: arithmetic.Popularity | None = None,
    *,
    steps: int = 6,
    pipelines: Sequence[Pipeline] = EACH,
) -> Case:
    """Returns what is measured of a model on so many hosts.

    Args:
        model: of `sven_arithmetic.MODELS`.
        hosts: of a lab.
        wanted: what a rank looks up; None: as the generator has it.
        steps: that are measured.
        pipelines: that it is trained with.
    """
    return Case(
        model,
        arithmetic.shape(model).columns,
        arithmetic.allreduced_bytes(model),
        arithmetic.BATCH,
        arithmetic.step(model, hosts, wanted or arithmetic.popularity()).slowed(_SLOWER),
        tuple(pipelines),
        steps,
    )


def _placements(say: Callable[[str], None]) -> list[dict[str, Any]]:
    found = []
    for placement in ARMS:
        say(f"a table in two tiers: {placement}")
        found += run_here(1, "sven_placement_worker", Arm(placement, batches=120), _TIMEOUT)
    return found
