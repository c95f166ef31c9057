"""Avazu's files of clicks: CSV with a header and 24 columns, all of them categorical."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trepak.models.click_batches import batch_of
from trepak.models.click_files import LineFormat, Paths, check_vocabularies, hashed, line_batches

_HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,"
    "device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)
_COLUMNS = _HEADER.split(",")
FEATURES = tuple(_COLUMNS[2:])
_FORMAT = LineFormat(
    r"[^,]*,[01],([0-9]{8})?(,[^,]*){21}",
    "24 fields with commas between them, of which click is 0 or 1 and hour has 8 digits",
    _HEADER,
)


def read_avazu(
    files: Paths, vocabularies: Mapping[str, int], batch_size: int, *, rank: int = 0, size: int = 1
) -> tf.data.Dataset:
    """Returns one rank's batches of Avazu's files, as `click_batches.batch_of` makes them.

    There are no counts. Of `hour` (YYMMDDHH) the feature is the hour of the day, HH; `id` is of
    the impression and not read. A missing field has the id 0. See `click_files.hashed` for the
    others, and `click_files.line_batches` for what a rank reads and for malformed lines.

    Args:
        files: paths of text, or of gzip if they end in ".gz".
        vocabularies: the number of ids of each feature to read: any of `FEATURES`.
        batch_size: samples in a batch.
        rank: this one, from 0.
        size: the number of ranks.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no such rank or feature, a vocabulary that is too small, or another header.
    """
    check_vocabularies(vocabularies, FEATURES)

    def parse(lines: Any) -> Any:
        fields = tf.reshape(tf.strings.split(lines, ",").flat_values, (-1, len(_COLUMNS)))
        ids = {}
        for name, rows in vocabularies.items():
            values = fields[:, _COLUMNS.index(name)]
            if name == "hour":
                values = tf.strings.regex_replace(values, r"^[0-9]{6}", "")
            ids[name] = hashed(values, rows)
        return batch_of(None, ids, tf.strings.to_number(fields[:, _COLUMNS.index("click")]))

    return line_batches(files, _FORMAT, parse, batch_size, rank, size)
