"""The same callbacks as `trepak.callbacks`, where Horovod scripts look for them."""

from trepak.callbacks import *  # noqa: F403
from trepak.callbacks import __all__  # noqa: F401
