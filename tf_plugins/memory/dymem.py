"""`Dymem`: trains in a pool of memory, and swaps what does not fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from trepak.ops.loader import call, call_before_ops
from trepak.tf_plugins.memory.sizes import bytes_of, is_size, memory_share

_PASS = "trepak_dymem"  # of ops/dymem_pass.cc
_LEAST_POOL = 1 << 20
_POLICIES = ("dymem", "vdnn", "superneurons", "none")
_KINDS = ("gtbm", "best_fit", "first_fit")
_LATE = (
    "trepak.Dymem comes too late: TensorFlow has taken memory before, so its allocator can't be "
    "changed any more. Make it the first thing that the script does after its imports, before any "
    "tensor, model or dataset, and before hvd.init()."
)
_TWICE = "This process has a trepak.Dymem already, which lasts as long as the process."


class Dymem:
    """Caps TensorFlow's memory in this process, and swaps feature maps so that training fits.

    One line at the top of a script, before TensorFlow takes memory:

        trepak.Dymem(pool="1GiB", beyond="8GiB")

    From then on all tensors of the processor lie in the pool. Each training step that is a graph
    (`fit`, or a custom loop in a `tf.function`) and that does not fit runs in depth-first order
    (Algorithm 2 of the thesis); the inputs of its layers leave the pool during the forward pass,
    and come back beside the backward pass, before they are needed (Algorithm 3). The numbers are
    those of plain TensorFlow, bit for bit, but for the order in which TensorFlow adds three or more
    gradients (see docs/dymem.md).

    Feature maps on another device (a GPU) leave to `beyond` too, in every step; `pool`, `beta`,
    `placement` and `always_swap` are about the processor's memory alone.

    Args:
        pool: bytes, or text such as "1GiB": what tensors may take, from the first step on. Kernels'
            scratch that finds no room there comes on top, and is counted. Default: the pool finds
            its size (section 4.1.3.3). It begins with half of the memory that this process may
            count on, and keeps what the first step took, and beta; when that is not enough, as
            for a larger batch, it takes another beta, or what a tensor needs, up to that half.
        beyond: where swapped tensors lie: a size, of this machine's memory, or a folder, for a file
            on its disk. Default: a quarter of the memory that this process may count on.
        policy: which tensors leave: "dymem", or for comparison (section 4.2.1) "vdnn" (inputs of
            all layers, each of which waits for the copies that began with the one before),
            "superneurons" (inputs of convolutions only) or "none".
        placement: how tensors lie in the pool: "gtbm" (grouped by mobility, Algorithm 4),
            "best_fit" or "first_fit". Default: "gtbm" for "dymem" and "best_fit" for baselines.
        beta: bytes of the pool that are kept back until the rest is not enough, which is counted as
            a shortage; what a pool that finds its size adds to what it saw. Default: a 32nd of
            the pool, or of what it saw.
        checksums: whether to prove that no swapped tensor changes, at the price of reading each
            three times.
        always_swap: whether "dymem" swaps also where a step fits into the pool. By default it swaps
            in the first step, and later only if what that step needed at most does not fit; what
            stayed leaves when memory is short after all.

    Raises:
        RuntimeError: TensorFlow has taken memory before, or this process has a Dymem.
        ValueError: an argument is wrong, or there is no such folder.
    """

    def __init__(
        self,
        pool: int | str | None = None,
        beyond: int | str | os.PathLike[str] | None = None,
        *,
        policy: Literal["dymem", "vdnn", "superneurons", "none"] = "dymem",
        placement: Literal["gtbm", "best_fit", "first_fit"] | None = None,
        beta: int | str | None = None,
        checksums: bool = False,
        always_swap: bool = False,
        _traces: bool = False,
        _link: float = 0.0,  # bytes per second of an emulated link; 0: as fast as it can
    ) -> None:
        placement = placement or ("gtbm" if policy == "dymem" else "best_fit")
        for name, value, choice in (
            ("policy", policy, _POLICIES),
            ("placement", placement, _KINDS),
        ):
            if value not in choice:
                raise ValueError(f"{name}={value!r} must be one of {', '.join(choice)}.")
        bytes_in_pool = memory_share() // 2 if pool is None else bytes_of(pool, "pool")
        if bytes_in_pool < _LEAST_POOL:
            raise ValueError(
                f"pool={pool!r} is {bytes_in_pool} bytes, too little for any tensor: write a unit, "
                'such as "512MiB".'
            )
        beyond = memory_share() // 4 if beyond is None else beyond
        is_folder = not isinstance(beyond, int) and not is_size(os.fspath(beyond))
        wrong = call_before_ops(
            "install_dymem",
            pool=bytes_in_pool,
            finds_limit=pool is None,
            beta=0 if beta is None else bytes_of(beta, "beta"),
            beyond=0 if is_folder else bytes_of(beyond, "beyond"),  # type: ignore[arg-type]
            folder=str(Path(beyond).absolute()) if is_folder else "",  # type: ignore[arg-type]
            policy=policy,
            placement=placement,
            checksums=checksums,
            always_swap=always_swap,
            traces=_traces,
            link=float(_link),
        )
        if wrong in ("late", "twice"):
            raise RuntimeError(_LATE if wrong == "late" else _TWICE)
        if wrong:
            raise ValueError(f"trepak.Dymem: {wrong}.")
        _enable_pass()
        # Keras takes memory where it is imported.
        from trepak.tf_plugins.memory import dymem_hooks

        dymem_hooks.install()

    def statistics(self, curve: bool = False) -> dict[str, Any]:
        """Returns what the pool and the swaps did since they were made; all sizes in bytes.

        Args:
            curve: whether to tell how full the pool was since the last `reset_peaks`, too.

        Returns:
            "pool": the limit, live and occupied memory, now and at most; shortages (times that
            beta was needed), waits, failures; fragmentation (equation 4.1) now, and over all
            tensors that were placed since the last `reset_peaks`. "swaps": tensors and bytes that
            left and came back, and tensors that left again before anybody had read them; how long
            copies took, and how long the computation waited for some. "beyond": what they take
            there. "graphs": for each training step's graph its layers, its swapped tensors, the
            layers that wait for copies, and what of it was left alone. "kept_steps": those in
            which nothing left, as all fitted. "first_failure": why a tensor could not leave.
            "policy": as it was given. "curve": at most 1024 points: seconds, live bytes, occupied
            bytes; the most until the next point.
        """
        told: dict[str, Any] = call("dymem_statistics", curve=curve)
        return told

    def reset_peaks(self) -> None:
        """Has peaks, fragmentation and the curve begin anew, from what lies in the pool now."""
        call("dymem_reset_peaks")


def _enable_pass() -> None:
    """Has Grappler run the pass on each function, whatever thread calls it.

    TensorFlow has no public way for all threads. Each makes its options from this configuration,
    also when `tf.config.optimizer` has changed some. Of datasets' functions the pass sees none.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    eager = context.context()
    _ = eager.config  # finds devices by what was given before
    config = config_pb2.ConfigProto()
    if eager._config is not None:
        config.CopyFrom(eager._config)
    config.graph_options.rewrite_options.custom_optimizers.add().name = _PASS
    eager._config = config
    eager.function_call_options = None  # this thread's, which were made before
