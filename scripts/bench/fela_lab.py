"""Points of virtual time that run for real: 8 ranks in a lab, emulated layers, real sockets.

Layers take a K40's time times `stretch`, and variables and activations have 1/`shrink` of their
elements; links are slower by both. So an iteration takes `stretch` times as long as a real one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench import fela_cases
from trepak.scripts.bench.fela_baselines import best
from trepak.scripts.bench.fela_cases import Delays, best_of
from trepak.scripts.bench.fela_clock import RATE
from trepak.scripts.bench.fela_setting import Outcome, Setting
from trepak.scripts.bench.fela_trials import FELA
from trepak.scripts.bench.ranks import lab_of, run_in
from trepak.scripts.report import Claims, Report
from trepak.scripts.surroundings import Surroundings

POINTS = "seconds of an iteration, in the lab (less its stretch) and in virtual time"
SERVER = "the token server's time, and that from a report to a token that is there, of a token's"

_MOST_OFF, _MOST_SHARE = 0.10, 0.01
_TIMEOUT = 400.0
_WARM = 2  # iterations, in which graphs are traced


@dataclass(frozen=True)
class Point:
    """What is run.

    Attributes:
        way: "Fela" or "DP".
        setting: Fela's; of DP its network and samples count.
        shrink: see above.
        stretch: see above.
        iterations: that count.
        delay: seconds for which worker i sleeps in iteration i, on a K40; 0: none does.
        slow_links: see above. Without, the server's time and the wait for a token are true, and the
            time of an iteration is not.
    """

    way: str
    setting: Setting
    shrink: float
    stretch: float
    iterations: int
    delay: float = 0.0
    slow_links: bool = True

    @property
    def steps(self) -> int:
        """Iterations in all; with the last one `fit` gives all ranks the weights of a subset."""
        return _WARM + self.iterations + 1

    @property
    def patterns(self) -> list[Delays]:
        """Who sleeps how long, by iteration that counts."""
        workers = self.setting.workers
        sleepers = (step % workers for step in range(_WARM, self.steps - 1))
        return [tuple(self.delay * (w == one) for w in range(workers)) for one in sleepers]

    @property
    def virtual(self) -> float:
        """Mean seconds of an iteration in virtual time."""
        if self.way == FELA:
            return statistics.mean(one.seconds for one in self.outcomes)
        setting = self.setting
        plan = best(self.way, setting.network, setting.total, setting.workers).plan
        return statistics.mean(plan.seconds(delays) for delays in self.patterns)

    @property
    def outcomes(self) -> list[Outcome]:
        """Fela's iterations in virtual time."""
        return [fela_cases.outcome(self.setting, delays) for delays in self.patterns]


def cuts_of(model: Any) -> list[str]:
    """Returns the names of the layers behind which an emulated network is cut, as the paper does.

    Where pooling halves images before a block: VGG-19 behind its third and fifth one.
    """
    pools = [layer.name for layer in model.layers if layer.name.startswith("pool_")]
    return [pools[2], pools[4]] if len(pools) == 5 else pools


def points() -> list[Point]:
    """Returns the four: small and large tokens, with and without a subset, sleepers, and DP.

    A token of GoogLeNet has 50 layers and takes a K40 some 10 ms: two cores for 8 workers need a
    larger stretch there. A fifth has but two workers, with a core for each where there are two.
    """
    vgg = best_of(fela_cases.tune("vgg19", 128)).setting
    google = best_of(fela_cases.tune("googlenet", 256)).setting
    scenario = next(fela_cases.scenarios("vgg19"))
    among = fela_cases.tune_among(fela_cases.tune("vgg19", 256), scenario)
    return [
        Point(FELA, vgg, 100.0, 10.0, 4),
        Point(FELA, google, 20.0, 60.0, 4),
        Point(FELA, among, 100.0, 10.0, 4, scenario.value),
        Point("DP", vgg, 100.0, 10.0, 3),
        Point(FELA, Setting("vgg19", 64, (1, 1, 2), 1, 2), 100.0, 2.0, 4, slow_links=False),
    ]


def measure(show: Callable[[str], None], chosen: Sequence[Point] | None = None) -> Report:
    """Runs all points.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    rows: list[dict[str, Any]] = []
    for point in points() if chosen is None else chosen:
        setting = point.setting
        what = f"{setting.network}, {setting.total} samples, {setting.workers} workers"
        show(f"{point.way}: {what}, in the lab")
        rows += run(point)
    return summarize(rows, surroundings.environment("trepak lab run --gloo"))


def run(point: Point) -> list[dict[str, Any]]:
    """Returns a point's rows.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    slower = point.shrink * point.stretch if point.slow_links else 1.0
    sleeps = {"TREPAK_DELAY": f"round-robin:{point.delay * point.stretch}s"} if point.delay else {}
    with lab_of(point.setting.workers, round(8 * RATE / slower)) as lab:
        of_ranks, idle = run_in(lab, "bench_fela_worker", point, _TIMEOUT, variables=sleeps)
    of_seconds = [one["seconds"] for one in of_ranks]
    steps = [max(times) / point.stretch for times in zip(*of_seconds, strict=True)]
    seconds = statistics.mean(steps)
    about = {
        "way": point.way,
        "network": point.setting.network,
        "total": point.setting.total,
        "workers": point.setting.workers,
        "delay": point.delay,
    }
    row = {
        "kind": POINTS,
        **about,
        "weights": " ".join(map(str, point.setting.weights)) if point.way == FELA else "",
        "lab": seconds,
        "least": min(steps),
        "most": max(steps),
        "virtual": point.virtual,
        "lab_to_virtual": seconds / point.virtual,
        "sharing": max(one["sharing"] for one in of_ranks) / point.stretch,
        "cpu_idle": idle,
    }
    rows = [row] if point.slow_links else []
    return [*rows, _server(point, about, of_ranks)] if point.way == FELA else rows


def _server(
    point: Point, about: dict[str, Any], of_ranks: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Times of the server and of messages are real ones, a token's time is a K40's."""
    work = [one for outcome in point.outcomes for one in outcome.work]
    token = statistics.mean(one.end - one.begin for one in work)
    server = of_ranks[0]["statistics"]
    serving = server["serving_seconds"] / server["served_tokens"]
    # Of an iteration's waits the last ones are for its end. Of those for tokens the server counts
    # the ones for which it had none yet: these are the longest.
    waits = sorted(second for one in of_ranks for second in one["waits"])
    without = server["served_waits"] - len(of_ranks) * server["served_iterations"]
    waiting = statistics.median(waits[: len(waits) - without])
    return {
        "kind": SERVER,
        **about,
        "token_ms": 1e3 * token,
        "serving_ms": 1e3 * serving,
        "of_token": serving / token,
        "waiting_ms": 1e3 * waiting,
        "waiting_of_token": waiting / token,
    }


def summarize(rows: list[dict[str, Any]], environment: dict[str, Any]) -> Report:
    """Returns the report of points' rows."""
    claims = Claims()
    for row in rows:
        sleeps = ".sleepers" if row["delay"] else ""
        name = f"{row['way'].lower()}.{row['network']}.{row['total']}{sleeps}"
        if row["kind"] == POINTS:
            off = abs(row["lab_to_virtual"] - 1)
            claims.add(f"fela.virtual_time_off.{name}", off, _MOST_OFF, "lower", unit="")
        else:
            claims.add(f"fela.scheduler_share.{name}", row["of_token"], _MOST_SHARE, "lower", "")
            if row["delay"]:  # who sleeps finds no tokens of its own left
                continue
            target = _MOST_SHARE if row["network"] == "vgg19" else None  # its tokens are long
            claims.add(f"fela.waiting_share.{name}", row["waiting_of_token"], target, "lower", "")
    idle = min((row["cpu_idle"] for row in rows if row["kind"] == POINTS), default=None)
    return Report("fela", claims, rows, environment, idle_share=idle)
