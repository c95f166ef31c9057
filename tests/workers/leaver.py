"""Rank 1 exits, with the code that is the argument, while rank 0 has more to do and no collective.

Rank 0 takes 3 seconds for it, or minutes where rank 1 has failed.
"""

import sys
import time

import tensorflow as tf

import trepak

trepak.init()
trepak.allreduce(tf.ones(3))
code = int(sys.argv[1])
if trepak.rank() == 0:
    time.sleep(600 if code else 3)
    print("rank 0 is done")
sys.exit(code if trepak.rank() == 1 else 0)
