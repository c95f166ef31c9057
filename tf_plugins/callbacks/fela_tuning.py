"""FelaTuning: finds the sizes of tokens and the conditional subset while training goes on."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.fela.compiled import check_subset
from trepak.tf_plugins.fela.fela import Fela
from trepak.tf_plugins.fela.rules import TokenRules

_SETTLING = 2  # iterations of a case that do not count: they trace graphs, and open flows


class TunedCase(NamedTuple):
    """What one case came to.

    Attributes:
        weights: of the sub-models' tokens.
        subset: how many ranks train conditional sub-models.
        seconds: of an iteration, the mean of the case's iterations on the slowest rank.
    """

    weights: tuple[int, ...]
    subset: int
    seconds: float


class FelaTuning(keras.callbacks.Callback):
    """Tries cases in the first iterations, and keeps the best (Section IV-B).

    Phase 1 tries the weights {1, 2, 4, …} that don't fall from a sub-model to the next one, with
    all ranks. Phase 2 halves the subset of ranks that train the sub-models with Dense layers. Phase
    3 is an addition: it tries the other weights with the subset that was found, because with all
    ranks the reduction of Dense layers hides what the size of their tokens is worth. Training goes
    on meanwhile. On all ranks, or on none.

    Attributes:
        cases: what was tried, the same on all ranks.
        chosen: the best one; None until then.
    """

    def __init__(
        self,
        fela: Fela,
        iterations: int = 5,
        keep: str | Path | None = None,
        figure: str | Path | None = None,
        verbose: int = 1,
    ) -> None:
        """Makes the callback.

        Args:
            fela: whose rules are tuned.
            iterations: measured for each case; two more pass before.
            keep: a JSON file that rank 0 writes when it has chosen. Where it is there, and was made
                by as many ranks of the same sub-models and batch sizes, its choice is taken, and
                nothing is tried.
            figure: draws Figure 6 there, as a PNG, on rank 0.
            verbose: 1 prints each case and the choice, on rank 0; 0 prints nothing.

        Raises:
            ValueError: fewer than one iteration.
        """
        super().__init__()
        if iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {iterations}.")
        self._fela, self._iterations = fela, iterations
        self._keep = None if keep is None else Path(keep)
        self._figure = None if figure is None else Path(figure)
        self._verbose = verbose
        size = basics.size()
        sub_models = len(fela.partition.sub_models)
        self._to_try = [(one, size) for one in TokenRules.weights_to_try(sub_models, size)]
        self._phase = 1
        self._times: list[float] = []
        self._seen, self._last = 0, 0.0
        self.cases: list[TunedCase] = []
        self.chosen: TunedCase | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins with the first case.

        Raises:
            ValueError: the job is elastic, so that ranks that join it could not take part; or Fela
                has a staleness, with which a step does not take the time of an iteration.
        """
        if self._fela.rules.staleness:
            raise ValueError(
                "FelaTuning measures iterations of bulk synchronous training: leave Fela's "
                "staleness at 0, and give what it has chosen to another Fela."
            )
        if basics.is_elastic():
            raise ValueError(
                "FelaTuning does not work in elastic jobs: give Fela the weights and the subset "
                "that another job has found."
            )
        self._use()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins to take the time anew: what lies between epochs is no iteration."""
        self._last = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Takes the time of the iteration; goes on to the next case, or ends the tuning.

        Raises:
            ValueError: the file of a tuning before is damaged; after the first iteration.
        """
        now = time.perf_counter()
        if self.chosen is None and not self.cases and self._seen == 0:
            self._look_up()
        if self.chosen is not None:
            return
        if self._seen >= _SETTLING:
            self._times.append(now - self._last)
        self._seen += 1
        if len(self._times) == self._iterations:
            self._end_case()
        self._last = time.perf_counter()

    def on_train_end(self, logs: Any = None) -> None:
        """Says so if the training was too short."""
        if self.chosen is None:
            warnings.warn(
                f"FelaTuning has tried {len(self.cases)} cases and had more to try, of "
                f"{_SETTLING + self._iterations} iterations each: nothing is chosen. Train longer, "
                "or give Fela fewer sub-models.",
                stacklevel=2,
            )

    def _look_up(self) -> None:
        """Takes what was kept; a collective call, when batch sizes are known."""
        kept, problem = self._kept() if basics.rank() == 0 else (None, "")
        kept, problem = exchange.gather((kept, problem), "Fela's tuning")[0]
        if problem:
            raise ValueError(problem)
        if kept is not None:
            self.chosen = TunedCase(tuple(kept[0]), kept[1], kept[2])
            self._say(f"kept in {self._keep}", self.chosen)
            self._use()

    def _end_case(self) -> None:
        mine = float(np.mean(self._times))
        slowest = max(exchange.gather(mine, "times of iterations under Fela"))
        weights, subset = self._to_try.pop(0)
        self.cases.append(TunedCase(weights, subset, slowest))
        self._say(f"case {len(self.cases)}", self.cases[-1])
        best = min(self.cases, key=lambda one: one.seconds)
        while not self._to_try and self._phase < 3:
            self._phase += 1
            self._to_try = self._cases_of(self._phase, best)
        if not self._to_try:
            self.chosen = best
            self._say("chosen", best)
            if basics.rank() == 0:
                self._write()
        self._use()

    def _cases_of(self, phase: int, best: TunedCase) -> list[tuple[tuple[int, ...], int]]:
        """Returns what a later phase tries, of the best case of those before."""
        size = basics.size()
        if phase == 2 and self._can_have_subsets():
            return [(best.weights, subset) for subset in TokenRules.subsets_to_try(size)]
        if phase == 3 and best.subset < size:
            others = TokenRules.weights_to_try(len(best.weights), size)
            return [(weights, best.subset) for weights in others if weights != best.weights]
        return []

    def _can_have_subsets(self) -> bool:
        """Tells whether the model, its optimizer and Horovod go with subsets."""
        try:
            check_subset(self.model)
        except ValueError:
            return False
        later = bool(int(os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "0")))
        return later and any(self._fela.rules.conditional)

    def _use(self) -> None:
        """Has iterations follow the choice, or else the case that is to be tried."""
        self._times, self._seen = [], 0
        weights, subset = self._to_try[0] if self.chosen is None else self.chosen[:2]
        if not any(self._fela.rules.conditional):
            subset = None
        if (weights, subset) != (self._fela.rules.weights, self._fela.rules.subset):
            self._fela.change(weights=weights, subset=subset)

    def _say(self, what: str, case: TunedCase) -> None:
        if self._verbose and basics.rank() == 0:
            print(
                f"Fela tuning, {what}: weights {' '.join(map(str, case.weights))}, "
                f"{case.subset} of {basics.size()} ranks train Dense layers: "
                f"{1000 * case.seconds:.1f} ms an iteration",
                flush=True,
            )

    def _made_for(self) -> dict[str, Any]:
        """Returns what a choice holds for: Keras numbers layers anew, so not their names."""
        sub_models = [
            [[*map(list, (v.shape for v in one.trainable))], [list(c.shape) for c in one.inputs]]
            for one in self._fela.partition.sub_models
        ]
        return {"batch_sizes": self._fela.batch_sizes, "sub_models": sub_models}

    def _kept(self) -> tuple[Any, str]:
        if self._keep is None or not self._keep.exists():
            return None, ""
        try:
            told = json.loads(self._keep.read_text())
            chosen = told["weights"], told["subset"], told["seconds"]
            return (chosen if told["made_for"] == self._made_for() else None), ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return None, (
                f"the file of Fela's tuning {self._keep} is damaged ({error}): delete it, and the "
                "cases are tried anew."
            )

    def _write(self) -> None:
        if self._keep is not None and self.chosen is not None:
            told = {"made_for": self._made_for(), **self.chosen._asdict()}
            self._keep.parent.mkdir(parents=True, exist_ok=True)
            new = self._keep.with_suffix(".new")
            new.write_text(json.dumps(told, indent=1))
            os.replace(new, self._keep)
        if self._figure is not None:
            draw_cases(self.cases, self._figure)


def draw_cases(cases: Sequence[TunedCase], path: Path) -> None:
    """Writes Figure 6 as a PNG: the time of an iteration by case, on a scale from 0 to 1.

    Args:
        cases: what was tried.
        path: the file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.8), dpi=150, layout="constrained")
    axes = figure.subplots()
    least, most = (extreme(one.seconds for one in cases) for extreme in (min, max))
    heights = [(one.seconds - least) / most for one in cases]
    axes.plot(range(len(cases)), heights, "o-")
    labels = [f"{','.join(map(str, one.weights))}\n{one.subset}" for one in cases]
    axes.set_xticks(range(len(cases)), labels, fontsize=7)
    axes.set(
        xlabel="case: weights of tokens, and ranks that train Dense layers",
        ylabel="time above the least, of the most",
        title=f"best {1000 * least:.1f} ms, worst {1000 * most:.1f} ms an iteration",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
