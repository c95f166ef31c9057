"""The script from which Horovod's driver learns each second what hosts an elastic job is to have.

It only prints what the launcher has written. The user's own script runs in the launcher: one that
hangs must hold up neither the driver, which keeps a lock meanwhile, nor the end of the job.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

# Only what the shell does itself, so that a run costs as little as it can. The driver has acted
# upon what one run printed before it starts the next. The first line of `hosts` numbers the list.
_SCRIPT = """#!/bin/sh
cd {folder} || exit 1
if [ -f printed ]; then
  read -r number <printed && echo "$number" >known
fi
{{
  read -r number || exit 1
  while read -r line; do echo "$line"; done
}} <hosts || exit 1
echo "$number" >printed
"""


class Discovery:
    """A script in a folder, and the list that it prints; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Writes the script; it fails until there is a list.

        Args:
            folder: an empty one.
        """
        self.script = folder / "discover.sh"
        self._folder = folder
        self._number = 0
        self.script.write_text(_SCRIPT.format(folder=shlex.quote(str(folder))))
        self.script.chmod(0o700)

    def write(self, hosts: Mapping[str, int]) -> None:
        """Has the script print these hosts from now on, in turn, with the slots of each."""
        self._number += 1
        lines = [str(self._number), *(f"{host}:{slots}" for host, slots in hosts.items())]
        new = self._folder / "hosts.new"
        new.write_text("".join(f"{line}\n" for line in lines))
        os.replace(new, self._folder / "hosts")  # at once, so that nobody reads half of it

    def is_known(self) -> bool:
        """Tells whether Horovod's driver has acted upon the list that was written last."""
        with contextlib.suppress(OSError, ValueError):  # none yet, or just being written
            return int((self._folder / "known").read_text()) == self._number
        return False
