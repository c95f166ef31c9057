"""What scripts import from submodules of horovod.tensorflow, beside the names that trepak has."""

from horovod.tensorflow.compression import (  # noqa: F401
    Compression,
    Compressor,
    FP16Compressor,
    NoneCompressor,
)
from horovod.tensorflow.util import (  # noqa: F401
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)
