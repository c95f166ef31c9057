"""What trepak adds to Horovod's Python side: collectives, exchange between ranks, failures.

Importing any of it imports TensorFlow and Horovod, without initialising either.
"""

from trepak.horovod_ext.startup import import_frameworks

import_frameworks()
