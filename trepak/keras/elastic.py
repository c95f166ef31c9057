"""The same names as `trepak.elastic`, where Horovod scripts look for them."""

from trepak.elastic import *  # noqa: F403
from trepak.elastic import __all__  # noqa: F401
