"""An LSTM that classifies videos by features of their frames, as RNA's evaluation trains it."""

from __future__ import annotations

import keras

from trepak.models.builder import Builder


def lstm(b: Builder, classes: int = 101, frames: int = 40, features: int = 2048) -> keras.Model:
    """Returns the classifier; 34,663,525 parameters for UCF101, as in the thesis, section 5.5.2.3.

    That number is of a layer 2048 wide and a dense one of 512; the text there says 4096 and 1024.
    """
    video = b.input((frames, features))
    x = b.pointwise(b.dense(b.lstm(video, features), 512), "relu")
    return b.model(video, b.dense(x, classes), "lstm")
