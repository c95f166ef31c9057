"""Variables that are so large that ranks get root's values by a sum."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import broadcasting

SPECIAL = [-0.0, 0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-45, -1e-40, 1 / 3]


@case
def large_variables_are_copied_bit_by_bit() -> None:
    root = hvd.size() - 1
    for dtype in (np.float32, np.float64):
        sent = np.resize(np.array(SPECIAL, np.float64).astype(dtype), (1 << 10, 1 << 9))
        variable = tf.Variable(sent if hvd.rank() == root else np.full_like(sent, hvd.rank()))
        assert broadcasting._is_better_summed(variable, hvd.global_process_set)
        trepak.broadcast_variables([variable], root)
        assert variable.numpy().tobytes() == sent.tobytes()
