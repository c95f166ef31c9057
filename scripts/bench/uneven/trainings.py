"""Runs trainings in a lab, a case's methods one after the other, and keeps what was measured."""

from __future__ import annotations

import dataclasses
import gzip
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trepak.scripts.bench.ranks import IN_A_LAB, lab_of, run_in
from trepak.scripts.bench.uneven.cases import Case, Job
from trepak.scripts.entrance import console
from trepak.scripts.errors import check_regular, read_json, reading
from trepak.scripts.report import Options
from trepak.scripts.surroundings import Surroundings, commit

_TIMEOUT = 3 * 3600.0
# Tensors that Horovod remembers the negotiation of: by default 1024, also of networks that are no
# more, and in every cycle ranks tell each other which of them are ready. After seven trainings that
# leaves 28% of two cores idle instead of 65 (8 ranks). A network has 22 at most.
_CACHED = 56
_MOST_BYTES = 256 << 20  # of a file of trainings
_REMEDY = "Give --kept a folder that a bench has filled, e.g. docs/results/rna."
ABOUT = "about.json"  # says where what lies beside it was measured

Run = Mapping[str, Any]  # a training: method, seed, and what each rank says of it; see `worker`


def measure_all(
    bench: str, jobs: Sequence[Job], options: Options
) -> tuple[list[tuple[Case, list[Run]]], dict[str, Any]]:
    """Runs all jobs, but for what was measured before.

    Args:
        bench: its name; finished trainings of this commit are kept under it.
        jobs: those of a case one after another.
        options: of the bench.

    Returns:
        The trainings of each case; and the report's environment.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    folder = None if options.quick else _folder_of(bench)
    measured: list[tuple[Case, list[Run]]] = []
    about: dict[str, Any] = {}
    if options.kept is not None:
        where = read_json(options.kept / ABOUT, _MOST_BYTES, "what a bench has kept", _REMEDY)
        about["where_they_were_measured"] = where
    # All of them first: what is damaged is found before hours have passed.
    keepers = [Keeper(job, folder, options.kept) for job in jobs]
    before = sum(len(keeper.runs) for keeper in keepers)
    with console(stderr=True).status("") as status:
        for number, (job, keeper) in enumerate(zip(jobs, keepers, strict=True), start=1):
            status.update(f"job {number} of {len(jobs)}: {job.name}")
            keeper.run_the_rest()
            if measured and measured[-1][0] == job.case:
                measured[-1][1].extend(keeper.runs)
            else:
                measured.append((job.case, keeper.runs))
    environment = surroundings.environment(IN_A_LAB)
    return measured, {**environment, "trainings_of_an_earlier_run": before, **about}


def _folder_of(bench: str) -> Path | None:
    """Returns where a bench keeps this commit's trainings; None if it is not known what runs."""
    known = commit()
    if known is None or known.endswith("-dirty"):
        return None
    return Path(__file__).resolve().parents[3] / "build" / f"bench-{bench}" / known


class Keeper:
    """Keeps what was measured of a job, so that one that was interrupted or killed can go on."""

    def __init__(self, job: Job, folder: Path | None, earlier: Path | None = None) -> None:
        """Reads what is kept of seeds with all their methods.

        Args:
            job: the job.
            folder: where more is kept; None keeps nothing.
            earlier: where others have been kept, compressed.
        """
        self._job = job
        name = f"{job.name.replace(' ', '-')}.json"
        self._file = None if folder is None else folder / name
        self.runs: list[Run] = []
        if earlier is not None and (compressed := earlier / f"{name}.gz").exists():
            check_regular(compressed, _MOST_BYTES)
            with reading(compressed, "what a bench has kept", _REMEDY):
                self._add(json.loads(gzip.decompress(compressed.read_bytes())))
        if self._file is not None:
            for file in (self._file, _under_way(self._file)):
                if file.exists():
                    with reading(file, "what a bench has kept", "Remove it."):
                        self._add(json.loads(file.read_text()))

    def _add(self, runs: Sequence[Run]) -> None:
        for seed in self._missing():
            of_seed = [run for run in runs if run["seed"] == seed]
            if {run["way"] for run in of_seed} == set(self._job.methods):
                self.runs += of_seed

    def _missing(self) -> list[int]:
        done = {run["seed"] for run in self.runs}
        return [seed for seed in self._job.seeds if seed not in done]

    def _save(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self.runs))
            _under_way(self._file).unlink(missing_ok=True)

    def run_the_rest(self) -> None:
        """Measures the seeds that are missing.

        Raises:
            JobError: the workers failed; what they have measured before is kept.
            LabError: no lab can be made here.
        """
        if not (missing := self._missing()):
            return
        self._save()
        with tempfile.TemporaryDirectory() as scratch:
            output = _under_way(self._file or Path(scratch) / "outcomes.json")
            try:
                run_job(dataclasses.replace(self._job, seeds=missing), output)
            finally:
                self._add(json.loads(output.read_text()) if output.exists() else [])
                self._save()


def _under_way(file: Path) -> Path:
    """Returns where a run writes before its trainings are kept; one that was killed leaves it."""
    return file.with_suffix(".under-way.json")


def run_job(job: Job, output: Path) -> None:
    """Runs one job in a lab of its own; writes its trainings as it goes.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    variables = {
        "HOROVOD_CYCLE_TIME": str(_cycle_ms(job.case)),
        "HOROVOD_CACHE_CAPACITY": str(_CACHED),
        "TREPAK_DEADLINE_SECONDS": "300",  # tracing takes one longer than another
    }
    with lab_of(len(job.case.ranks), job.case.bits_per_second()) as lab:
        run_in(lab, "uneven.worker", job, _TIMEOUT, variables, output=output)


def _cycle_ms(case: Case) -> int:
    """Returns how often Horovod looks for work: as rarely as leaves its steps as fast as they are.

    Eight ranks that look every ms take 35% of two cores. Steps of an even cluster take 4% longer
    with 5 ms; those that exchange 5 to 10 ms are as fast with 3 (docs/results/elastic_bsp.md).
    """
    if case.exchange_ms > 10:
        return 5
    return 3 if case.exchange_ms >= 5 and len(case.ranks) >= 8 else 1
