"""The names of `horovod.tensorflow.compression`: `Compressor` is the base of one's own."""

from trepak.horovod_ext.old_names import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
