"""What elements of a dataset are, as text that processes tell each other."""

from __future__ import annotations

import base64
from typing import Any

from tensorflow.core.protobuf import struct_pb2
from tensorflow.python.saved_model import nested_structure_coder


def to_text(spec: Any) -> str:
    """Returns a dataset's element_spec as text."""
    return base64.b64encode(
        nested_structure_coder.encode_structure(spec).SerializeToString()
    ).decode()


def from_text(text: str) -> Any:
    """Returns the element_spec that `to_text` has made text of."""
    proto = struct_pb2.StructuredValue.FromString(base64.b64decode(text))
    return nested_structure_coder.decode_proto(proto)
