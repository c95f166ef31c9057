"""A machine of stubs on which the real scripts/setup.sh runs."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What the script itself needs, apart from what it checks for.
TOOLS = (
    "bash basename cat cp cut dirname find flock getconf grep head mkdir mktemp mv paste rm sed "
    "sha256sum sort tail tar touch uname xargs"
)
CHECKED = "g++ make cmake pkg-config mpicxx mpirun ip clang-format"

# Stands in for Python, in the virtual environment too: does what the script relies on, and logs.
PYTHON_STUB = """
echo "$*" >>{folder}/python-calls
after() {{ while [[ $1 != "$option" ]]; do shift; done; echo "$2"; }}
case $* in
  *version_info*) echo 3.11 ;;
  "-m venv "*) mkdir -p "$3/bin" "$3/include" && cp "$0" "$3/bin/python" ;;
  *"pip download"*)
    option=-d; dir=$(after "$@"); gloo=$dir/horovod-0.28.1/horovod/common/gloo
    mkdir -p "$gloo" && echo 'global_ranks_.reserve(size_);' >"$gloo/gloo_controller.cc"
    echo 'InitializeRegisteredAndRemoveMarkedIfReady_(context, status);' >"$gloo/../process_set.cc"
    pair=$dir/horovod-0.28.1/third_party/gloo/gloo/transport/tcp/pair.cc
    mkdir -p "${{pair%/*}}" && printf '%s\\n' >"$pair" \\
      '    // which is destructed upon that function returning.' \\
      '  // Acquire pointer to unbound buffer if applicable.' \\
      '  // Loop through pending send operations.'
    tar -cf "$dir/horovod-0.28.1.tar.gz" -C "$dir" horovod-0.28.1 ;;
  *"pip wheel"*)
    option=-w; dir=$(after "$@"); mkdir -p "$dir/include" && touch "$dir/horovod-1.whl"
    ! compgen -e HOROVOD_GPU || exit 4
    [[ ! -e {folder}/fail ]] || exit 5
    [[ ! -e {folder}/race ]] || {{
      first={cache}/$(<{folder}/race)
      mkdir -p "$first/include" && touch "$first/horovod-first.whl"; }} ;;
  *"-v -e "*) touch {checkout}/ops/_trepak_ops.tf2.21.so ;;
esac
"""


class Machine:
    """A checkout with a PATH on which only stubs are found."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.checkout = folder / "checkout"
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/setup.sh", self.checkout / "scripts")
        shutil.copy(ROOT / "requirements.txt", self.checkout)
        self.environment = {"PATH": str(self.bin), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        for tool in TOOLS.split():
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stub("id", "echo 1000")

    def stub(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def equip(self):
        """Puts everything that the script checks for on the PATH."""
        for name in CHECKED.split():
            self.stub(name, f"echo {name} 1.0")
        self.stub("python3.11", "echo 3.11")

    def equip_for_builds(self):
        """Makes whole set-ups succeed, without building anything real."""
        self.equip()
        self.cache = self.folder / ".cache/trepak/wheels"
        script = PYTHON_STUB.format(folder=self.folder, cache=self.cache, checkout=self.checkout)
        self.stub("python3.11", script)
        (self.checkout / "ops/runtime").mkdir(parents=True)
        (self.checkout / "ops/x_ops.cc").write_text("int x;")
        for name in ("setup.py", "pyproject.toml", "CMakeLists.txt"):
            shutil.copy(ROOT / name, self.checkout)

    def calls(self, text):
        """Returns how often Python was called with this text, and forgets all calls."""
        log = self.folder / "python-calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return sum(text in line for line in lines)

    def run(self, *arguments):
        command = [str(self.bin / "bash"), str(self.checkout / "scripts/setup.sh"), *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def key(self):
        done = self.run("horovod-key")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
