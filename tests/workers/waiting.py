"""A rank that waits: writes which share of a core its process took meanwhile."""

import json
import os
import time
from pathlib import Path

import trepak

SECONDS = 3.0

trepak.init()
trepak.barrier()
before = time.process_time()
time.sleep(SECONDS)
share = (time.process_time() - before) / SECONDS
Path(os.environ["OUT"], f"{trepak.rank()}.json").write_text(json.dumps({"share": share}))
trepak.shutdown()
