"""A job with a StragglerMonitor on emulated accelerators; rank 0 writes the verdict to $OUT."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np

import trepak.keras as hvd
from trepak.callbacks import StragglerMonitor
from trepak.horovod_ext.straggler_verdict import verdict_of
from trepak.models import zoo

STEPS, BATCH = 50, 32
OUT = Path(os.environ["OUT"])


class Look(keras.callbacks.Callback):
    """Asks `trepak top` about this very job, once, in both ways."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if hvd.rank() or not self._port:
            return
        top = [str(Path(sys.executable).parent / "trepak"), "top", "--once"]
        for name, options in (("local", []), ("port", ["--address", f"127.0.0.1:{self._port}"])):
            shown = subprocess.run([*top, *options], capture_output=True, text=True, timeout=60)
            (OUT / f"top.{name}").write_text(shown.stdout + shown.stderr)


def main() -> None:
    hvd.init()
    port = int(os.environ.get("PORT", "0"))
    model = zoo.build("alexnet", emulate="k40", shrink=1000)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    x, y = np.zeros((BATCH * STEPS, 1), "float32"), np.ones((BATCH * STEPS, 1), "float32")
    monitor = StragglerMonitor(every=20, log_dir=OUT / "tb" if port else None, port=port or None)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), monitor, Look(port)]
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    table = monitor.table
    outcome = {
        "stragglers": [report.rank for report in table.stragglers()],
        "verdict": verdict_of(table),
        "steps": table.steps,
        "seconds": table.total_seconds,
        "ranks": [dataclasses.asdict(report) for report in table.reports()],
    }
    (OUT / f"{hvd.rank()}.json").write_text(json.dumps(outcome))
    hvd.shutdown()


if __name__ == "__main__":
    main()
