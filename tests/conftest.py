"""Starts real multi-process jobs for the tests."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from trepak.scripts.launcher import PINNED
from trepak.scripts.launcher import horovodrun as find_horovodrun

WORKERS = Path(__file__).parent / "workers"

# 2 cores carry up to 3 ranks: one thread each, and ranks that wait give their core away.
JOB_ENVIRONMENT = {
    **PINNED,
    "TF_NUM_INTEROP_THREADS": "2",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "TREPAK_STALL_SECONDS": "60",
    "PYTHONPATH": os.pathsep.join(
        [str(WORKERS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    ),
}


class Plan(NamedTuple):
    """A job that tests share: its ranks, its launcher, and what its workers find set."""

    np: int
    gloo: bool
    env: dict[str, str] = {}


def exact(optimizer: str, way: str = "horovod", part: str = "1/1") -> dict[str, str]:
    """Returns what exactness compares; `part` is "I/K": every K-th feature, from the I-th."""
    return {
        "EXACTNESS_OPTIMIZERS": optimizer,
        "EXACTNESS_WAY": way,
        "EXACTNESS_PART": part,
    }


def carried_by(transport: str, ucx: str = "") -> dict[str, str]:
    """Returns what has alltoalls carried so; elsewhere UCX does, in shared memory."""
    return {"TREPAK_ALLTOALL_TRANSPORT": transport, **({"UCX_TLS": ucx} if ucx else {})}


# All optimizers × features on all jobs takes 20 minutes: that is `make soak`, as are the longest
# workers under Gloo. Here each job compares one optimizer, two ranks with every feature, three
# ranks with every feature on one launcher or the other. Starting a job takes as long as many cases
# do, so what tests ask of the same ranks runs in one; "pace" are those of ranks at their own pace.
PLANS = {
    "mpi-2": Plan(2, False, exact("momentum")),
    "gloo-2": Plan(2, True, exact("adamw")),
    "mpi-3": Plan(3, False, exact("adam", part="1/2")),
    "gloo-3": Plan(3, True, exact("sgd", part="2/2")),
    "geryon-mpi-2": Plan(2, False, exact("adam", "geryon overlap")),
    "geryon-gloo-4": Plan(4, True, exact("momentum", "geryon", "1/2")),
    "lanes-mpi-2": Plan(2, False, exact("adam", "lanes overlap", "1/3") | carried_by("flows")),
    "lanes-gloo-3": Plan(
        3, True, exact("momentum", "lanes overlap", "2/3") | carried_by("ucx", "tcp,self")
    ),
    "pace-mpi-2": Plan(2, False),
    "pace-gloo-3": Plan(3, True),
    "still-gloo-3": Plan(3, True),
    "chicle-mpi-2": Plan(2, False),
    "chicle-gloo-3": Plan(3, True),
    "fela-mpi-2": Plan(2, False),
    "fela-gloo-3": Plan(3, True),
}
JOB_SECONDS = 560
ONE_LAB = {
    "test_bench",
    "test_bench_chicle",
    "test_geryon_lab",
    "test_lab",
    "test_stragglers",
}  # at a time
SHOWN: dict[str, list[str]] = {name: [] for name in PLANS}  # by job, the workers that tests ask for


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps together what shares a job, a lab or a file, where pytest runs in two processes."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            shared = next((name for name in PLANS if f"[{name}-" in test), None)
            in_lab = Path(file).stem in ONE_LAB or "_in_a_lab" in test
            return shared or ("lab" if in_lab else file)

    return Together(config, log)


@pytest.fixture(autouse=True)
def nothing_is_left_to_jobs() -> Iterator[None]:
    """Horovod and MPI leave variables behind: jobs of this process would start with them."""
    yield
    left = os.environ.pop("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "")
    assert not left, "this test has called `trepak.init()`: let it do so in a process of its own"


@dataclass
class Job:
    """What a finished job left: exit code, output, and per rank the outcome of each case."""

    code: int
    output: str
    ranks: list[dict[str, Any]]

    def passed(self, worker: str) -> list[int]:
        """Returns how many cases of a worker each rank passed; fails if one did not pass."""
        mine = [
            {name: result for name, result in results.items() if name.startswith(f"{worker}.")}
            for results in self.ranks
        ]
        failed = [
            f"rank {rank}, {name}:\n{result['error']}"
            for rank, results in enumerate(mine)
            for name, result in results.items()
            if not result["ok"]
        ]
        assert not failed, "\n".join(failed)
        assert all(mine), self.output[-6000:]
        return [len(results) for results in mine]


@dataclass
class Shown:
    """What a worker has shown in a job that tests share."""

    name: str
    plan: Plan
    worker: str
    job: Job

    def check(self, cases: int | None = None) -> None:
        """Checks that all ranks passed all cases, by default those that the worker declares."""
        expected = count_cases(self.worker) if cases is None else cases
        assert self.job.passed(self.worker) == [expected] * self.plan.np, self.job.output[-6000:]
        assert self.job.code == 0, self.job.output[-6000:]


def shows(workers: dict[str, list[str]]) -> Callable[[Any], Any]:
    """Returns a decorator: the test gets what each worker has `shown` in each job, by PLANS' names.

    A job runs the workers of all tests that pytest has collected, when the first one needs it.
    """
    pairs = [(job, worker) for job, some in workers.items() for worker in some]
    names = ["-".join(pair) for pair in pairs]
    for job, worker in pairs:
        if worker not in SHOWN[job]:  # where the test's file is imported twice
            SHOWN[job].append(worker)

    def decorate(test: Any) -> Any:
        marked = pytest.mark.parametrize("shown", pairs, indirect=True, ids=names)(test)
        return pytest.mark.timeout(JOB_SECONDS + 40)(marked)

    return decorate


@pytest.fixture(scope="session")
def shared_jobs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Job]:
    """Returns a function that returns the finished job of a plan; each runs once."""
    wanted: dict[str, dict[str, None]] = {}
    for item in request.session.items:
        if pair := getattr(item, "callspec", None) and item.callspec.params.get("shown"):
            wanted.setdefault(pair[0], {})[pair[1]] = None

    @functools.cache
    def outcome(name: str) -> Job | Exception:
        plan, out = PLANS[name], tmp_path_factory.mktemp(name)
        try:
            return run_job(
                ["run.py", *wanted[name]], out, plan.np, plan.gloo, plan.env, JOB_SECONDS
            )
        except Exception as error:
            return error

    def job(name: str) -> Job:
        found = outcome(name)
        if isinstance(found, Exception):
            raise found
        return found

    return job


@pytest.fixture
def shown(request: pytest.FixtureRequest, shared_jobs: Callable[[str], Job]) -> Shown:
    """What a worker has shown; see `shows`."""
    name, worker = request.param
    return Shown(name, PLANS[name], worker, shared_jobs(name))


def count_cases(worker: str) -> int:
    """Returns how many cases a worker declares, so that a job that runs none cannot pass."""
    source = (WORKERS / f"{worker}.py").read_text()
    return len(re.findall(r"^(?:@case$|add\(__name__, )", source, re.MULTILINE))


def package_of(tree: Path, folder: Path) -> str:
    """Makes a package of links to a tree of this repository; returns what PYTHONPATH needs."""
    package = folder / "packages" / "trepak"
    package.mkdir(parents=True)
    parts = ("tf_plugins", "horovod_ext", "ops", "models", "scripts")
    for entry in [*(tree / "trepak").iterdir(), *(tree / part for part in parts)]:
        (package / entry.name).symlink_to(entry)
    return str(package.parent)


def horovodrun(np: int, gloo: bool) -> list[str]:
    return [
        find_horovodrun(),
        *(["--gloo"] if gloo else []),
        "-np",
        str(np),
        "-H",
        f"localhost:{np}",
    ]


def start(
    command: list[str], out: Path, env: dict[str, str] | None = None, **kwargs: Any
) -> subprocess.Popen[str]:
    """Starts a command with the job's environment; `out` is where its ranks write."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **JOB_ENVIRONMENT, "OUT": str(out), **(env or {})}
    return subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        **{"stdout": subprocess.PIPE, **kwargs},
    )


def wait_for(paths: list[Path], seconds: float = 90) -> None:
    """Waits until all files are there, with something in them."""
    deadline = time.monotonic() + seconds
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < deadline, f"{paths} did not appear"
        time.sleep(0.05)


def finish(process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
    """Waits for a started job; ends it with all its processes when the time is over."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # Launchers give their ranks groups of their own.
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        return 124, (output or "") + f"\nended after {seconds} s"
    return process.returncode, output or ""  # which is elsewhere where `start` was told so


def run_job(
    program: Sequence[str],
    out: Path,
    np: int = 2,
    gloo: bool = False,
    env: dict[str, str] | None = None,
    seconds: float = 280,
) -> Job:
    """Runs a program of tests/workers, its file first, on `np` ranks under horovodrun."""
    command = [*horovodrun(np, gloo), sys.executable, str(WORKERS / program[0]), *program[1:]]
    code, output = finish(start(command, out, env), seconds)
    output += "".join(file.read_text() for file in sorted(out.glob("*.stacks")))
    files = [out / f"{rank}.json" for rank in range(np)]
    ranks = [json.loads(f.read_text()) if f.exists() else {} for f in files]
    return Job(code, output, ranks)
