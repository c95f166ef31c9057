"""`trepak bench dymem`: memory and time of the thesis's networks, and what trains in a pool."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trepak.scripts.bench.dymem_figures import draw
from trepak.scripts.bench.dymem_networks import NETWORKS, RESNET_32, Network
from trepak.scripts.bench.dymem_report import summarize
from trepak.scripts.bench.dymem_trainings import train_all
from trepak.scripts.bench.ranks import run_alone
from trepak.scripts.entrance import console
from trepak.scripts.report import Options, Report
from trepak.scripts.surroundings import Surroundings

__all__ = ["SUMMARY", "draw", "measure"]

SUMMARY = "memory, time and trainability: Dymem, SuperNeurons, vDNN, and without swaps"

_AT_ONCE = 2  # traces compute for seconds only
_TIMEOUT = 400.0


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: a process failed.
    """
    surroundings = Surroundings()
    networks = (RESNET_32,) if options.quick else NETWORKS
    with console(stderr=True).status("") as status:
        waiting = [network.name for network in networks]

        def replayed(network: Network) -> Any:
            quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}
            found = run_alone("bench_dymem_worker", network, _TIMEOUT, quiet)
            waiting.remove(network.name)
            status.update(f"tracing and replaying {', '.join(waiting)}")
            return found

        status.update(f"tracing and replaying {', '.join(waiting)}")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(replayed, networks))
        trainings = [] if options.quick else train_all(status.update)
    return summarize(found, trainings, surroundings.environment("processes without a launcher"))
