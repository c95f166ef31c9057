"""Names that scripts know: Horovod's, beside those that trepak has, and trepak's former ones."""

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

from trepak.horovod_ext.gradient_transport import GradientTransport as Transport  # noqa: F401
