#!/usr/bin/env bash
# Sets up everything trepak needs: Debian packages, .venv, Horovod, trepak itself.
#
#   scripts/setup.sh                  do it all; what is up to date is skipped
#   scripts/setup.sh check-packages   say which system packages are missing, install nothing
#   scripts/setup.sh horovod-key      print the key under which Horovod's wheel is cached
#
# Environment: PYTHON (a Python 3.11), CXX, TREPAK_CACHE (see docs/configuration.md), JOBS.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
LOG=$ROOT/build/logs/setup.log
CACHE=${TREPAK_CACHE:-${XDG_CACHE_HOME:-${HOME:-$ROOT/build}/.cache}/trepak}/wheels
JOBS=${JOBS:-$(getconf _NPROCESSORS_ONLN)}
HOROVOD_VERSION=0.28.1
PYTHON_VERSION=3.11
STEPS=4

die() {
  printf '%s\n' "$*" >&2
  exit 1
}

# step NUMBER TITLE UP_TO_DATE_TEST COMMAND: runs COMMAND unless the test says it is up to date,
# with all its output in the log and one line on the terminal.
step() {
  local number=$1 title=$2 up_to_date=$3 command=$4 start=$SECONDS rc
  printf '[%d/%d] %s …' "$number" "$STEPS" "$title"
  if "$up_to_date"; then
    echo ' up to date'
    return
  fi
  printf '\n== [%d/%d] %s\n' "$number" "$STEPS" "$title" >>"$LOG"
  # Not "if (…)" or "(…) ||": bash would ignore `set -e` inside.
  set +e
  (set -e; "$command") >>"$LOG" 2>&1 </dev/null
  rc=$?
  set -e
  if ((rc != 0)); then
    printf ' failed after %d s. The last lines of %s:\n\n' $((SECONDS - start)) "$LOG"
    tail -n 30 "$LOG"
    exit 1
  fi
  printf ' %d s\n' $((SECONDS - start))
}

# stamped NAME KEY: whether the step NAME was finished for KEY. stamp NAME KEY: says that it is.
# The stamps live in .venv, so that they go when it goes.
stamped() { [[ -f $VENV/.stamp-$1 && $(<"$VENV/.stamp-$1") == "$2" ]]; }
stamp() { printf '%s' "$2" >"$VENV/.stamp-$1"; }
unstamp() { rm -f "$VENV/.stamp-$1"; }

hash() { sha256sum | cut -c 1-16; }

# --- 1. System packages -------------------------------------------------------------------------

# Prints a Python of the right version, or nothing.
find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} "python$PYTHON_VERSION" python3; do
    if [[ $("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) \
      == "$PYTHON_VERSION" ]]; then
      command -v "$candidate"
      return
    fi
  done
}

# need PACKAGE PROBE…: prints PACKAGE unless the probe succeeds. Probing for the thing rather than
# asking the package manager lets other systems, and hand-built tools, pass too.
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || echo "$package"
}

has() { command -v "$1"; }

missing_packages() {
  need g++ has "${CXX:-g++}"
  need make has make
  need cmake has cmake
  need pkg-config has pkg-config
  need libopenmpi-dev has mpicxx
  need openmpi-bin has mpirun
  need libzmq3-dev pkg-config --exists libzmq
  need libsodium-dev pkg-config --exists libsodium
  need nlohmann-json3-dev pkg-config --exists nlohmann_json
  need libxxhash-dev pkg-config --exists libxxhash
  need libucx-dev pkg-config --exists ucx
  need iproute2 has ip
  need libgtest-dev pkg-config --exists gtest
  need libgmock-dev pkg-config --exists gmock
  need clang-format has clang-format
  if [[ ! -x $VENV/bin/python ]]; then
    local python
    python=$(find_python)
    need python3 test -n "$python"
    need python3-venv "${python:-false}" -c 'import ensurepip'
  fi
}

# explain PACKAGE…: one message for whoever has to install them by hand.
explain() {
  echo "trepak needs system packages that are missing: $*"
  if command -v apt-get >/dev/null; then
    echo "Install them with:"
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends $*"
  else
    echo "These are their Debian names. Install what corresponds to them on this system"
    echo "(Python must be $PYTHON_VERSION; name one that is not on the PATH with PYTHON=…)."
  fi
  echo "Then run the same command again."
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update
  # Word splitting is wanted: one word per package.
  # shellcheck disable=SC2046
  apt-get install -y --no-install-recommends $(missing_packages)
}

packages_present() { [[ -z $MISSING ]]; }

check_packages() {
  MISSING=$(missing_packages | paste -s -d ' ')
  [[ -z $MISSING ]] || die "$(explain "$MISSING")"
}

system_packages() {
  MISSING=$(missing_packages | paste -s -d ' ')
  if [[ -n $MISSING ]] && ! { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }; then
    die "$(explain "$MISSING")"
  fi
  step 1 "System packages" packages_present install_packages
  # The newest Debian's python3 is not the Python that everything is pinned for.
  if [[ ! -x $VENV/bin/python && -z $(find_python) ]]; then
    die "trepak is pinned for Python $PYTHON_VERSION, which is not here (Debian 12's python3 is" \
      "one). Install it beside the system's, and name it: make setup PYTHON=/path/to/python3.11"
  fi
}

# --- 2. Python packages -------------------------------------------------------------------------

# A virtual environment can't be moved, hence the folder.
python_key() { { echo "$ROOT"; cat "$ROOT/requirements.txt"; } | hash; }
python_ready() { stamped python "$(python_key)" && [[ -x $VENV/bin/python ]]; }

install_python_packages() {
  # Without a stamp an earlier attempt was cut off, and what it left can't be trusted.
  if [[ ! -f $VENV/.stamp-python || ! -x $VENV/bin/python ]]; then
    rm -rf "$VENV"
    "$(find_python)" -m venv "$VENV"
  fi
  unstamp python
  "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps \
    -r "$ROOT/requirements.txt"
  stamp python "$(python_key)"
}

# --- 3. Horovod ---------------------------------------------------------------------------------

pinned() { sed -n "s/^$1==//p" "$ROOT/requirements.txt"; }

# Everything that the wheel depends on, the recipe itself included.
horovod_key() {
  {
    echo "horovod $HOROVOD_VERSION"
    echo "tensorflow $(pinned tensorflow-cpu)"
    echo "python $PYTHON_VERSION"
    echo "machine $(uname -m) $(getconf GNU_LIBC_VERSION)"
    echo "compiler $("${CXX:-g++}" --version | head -n 1)"
    echo "mpi $(mpirun --version | head -n 1)"
    declare -f build_horovod mend_horovod mend
  } | hash
}

horovod_ready() { stamped horovod "$HOROVOD_KEY"; }
horovod_wheel() { find "$CACHE/$HOROVOD_KEY" -name 'horovod-*.whl' 2>/dev/null; }

# mend_horovod FOLDER: mends what is wrong in the sources of its core, and of its Gloo.
mend_horovod() {
  local common=$1/horovod/common pair=$1/third_party/gloo/gloo/transport/tcp/pair.cc
  # With Gloo the list of ranks has room but no size, so the stall inspector finds no rank missing
  # and a collective that some rank never enters waits for ever.
  mend "$common/gloo/gloo_controller.cc" 'global_ranks_\.reserve(size_);' 'global_ranks_.resize(size_);'
  # With process sets and Gloo a lost rank ended all others: they agree on removing the sets with a
  # rank that is not there any more, and nobody catches what that throws.
  mend "$common/process_set.cc" 'InitializeRegisteredAndRemoveMarkedIfReady_(context, status);' \
    'try { & } catch (const std::exception\& exception) {
        LOG(ERROR, Get(0).controller->GetRank())
            << "process set " << id << " is removed without the other ranks: "
            << exception.what();
        id_to_process_set_[id].Finalize(status);
        DeregisterProcessSet(id);
        id_to_be_removed_ = NO_PENDING_REMOVAL;
        break;
      }'
  # A collective that fails takes its buffers with it. A message for such a buffer blocked its
  # connection, so whoever waited there next waited for Gloo's 30 s, even if the peer was gone.
  local gone='signalException(GLOO_ERROR_MSG("Collective with ", peer_.str(), " has failed"));'
  mend "$pair" '    // which is destructed upon that function returning\.' "&
    if (!NonOwningPtr<UnboundBuffer>(op.ubuf)) {
      $gone
      return -1;
    }"
  mend "$pair" '  // Acquire pointer to unbound buffer if applicable\.' "&
  if (opcode == Op::SEND_UNBOUND_BUFFER \&\& !NonOwningPtr<UnboundBuffer>(op.ubuf)) {
    $gone
    return false;
  }"
  # And who waited for a message that was half on its way was not told that its peer was gone.
  mend "$pair" '  // Loop through pending send operations\.' \
    '  auto tell = [ex](const Op\& op) {
    NonOwningPtr<UnboundBuffer> buf(op.ubuf);
    if (buf) {
      buf->signalException(ex);
    }
  };
  std::for_each(tx_.begin(), tx_.end(), tell);
  tell(rx_);
&'
}

# mend FILE PATTERN REPLACEMENT: as sed knows them; fails unless there is one such line.
mend() {
  [[ $(grep -c "$2" "$1") == 1 ]] || { echo "$1 has not one '$2' to mend" >&2 && return 1; }
  sed -i "s|$2|${3//$'\n'/\\n}|" "$1"
}

# build_horovod FOLDER: leaves the wheel in FOLDER/wheel.
build_horovod() {
  local work=$1 include
  # Horovod's own build looks for cmake and python on the PATH.
  export PATH=$VENV/bin:$PATH
  include=$(TF_CPP_MIN_LOG_LEVEL=3 python -c \
    'import tensorflow as tf; print(tf.sysconfig.get_include())' 2>/dev/null | tail -n 1)
  # TensorFlow moved this header; Horovod includes it under its old name.
  mkdir -p "$work/forward/tensorflow/compiler/xla/client"
  echo '#include "xla/hlo/builder/xla_builder.h"' \
    >"$work/forward/tensorflow/compiler/xla/client/xla_builder.h"
  # TensorFlow's compile flags lack two folders that its own headers include from.
  export CPLUS_INCLUDE_PATH=$include/external/highwayhash:$include/external/farmhash_archive/src
  export CPLUS_INCLUDE_PATH=$CPLUS_INCLUDE_PATH:$work/forward
  export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
  export HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 MAKEFLAGS=-j$JOBS
  python -m pip download --disable-pip-version-check --no-input --no-deps --no-build-isolation \
    --no-binary horovod -d "$work/sdist" "horovod==$HOROVOD_VERSION"
  tar -xf "$work"/sdist/horovod-*.tar.gz -C "$work"
  mend_horovod "$work/horovod-$HOROVOD_VERSION"
  # Whoever calls Horovod's core needs its headers, which the wheel does not carry.
  (cd "$work/horovod-$HOROVOD_VERSION" &&
    find horovod/common -name '*.h' -exec install -D -m 644 {} "$work/wheel/include/{}" \;)
  python -m pip wheel --disable-pip-version-check --no-input --no-deps --no-build-isolation -v \
    -w "$work/wheel" "$work/horovod-$HOROVOD_VERSION"
  # A wheel that doesn't load must not get into the cache.
  python -m zipfile -e "$work"/wheel/horovod-*.whl "$work/unpacked"
  (cd "$work" && PYTHONPATH=$work/unpacked TF_CPP_MIN_LOG_LEVEL=3 python -c \
    'import horovod.tensorflow as hvd; assert hvd.mpi_built() and hvd.gloo_built()')
}

install_horovod() {
  unstamp horovod
  if [[ -z $(horovod_wheel) ]]; then
    mkdir -p "$CACHE"
    find "$CACHE" -maxdepth 1 -name '.building.*' -mmin +1440 -exec rm -rf {} +
    local work
    work=$(mktemp -d "$CACHE/.building.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    # The caller's own HOROVOD_… settings are not in the key, so they must not get into the wheel.
    # shellcheck disable=SC2046
    unset $(compgen -e HOROVOD_)
    build_horovod "$work"
    # One rename: the cache holds the whole wheel or none. If another set-up was faster, its wheel
    # stays.
    mv -T "$work/wheel" "$CACHE/$HOROVOD_KEY" || [[ -n $(horovod_wheel) ]]
  fi
  "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps \
    --no-index --force-reinstall "$(horovod_wheel)"
  rm -rf "$VENV/include/horovod"
  cp -r "$CACHE/$HOROVOD_KEY/include" "$VENV/include/horovod"
  stamp horovod "$HOROVOD_KEY"
}

# --- 4. trepak ----------------------------------------------------------------------------------

# Python files are used in place; only what is compiled or read at installation matters.
trepak_key() {
  (
    cd "$ROOT"
    python_key
    cat setup.py pyproject.toml CMakeLists.txt
    find ops -type f ! -name '*_test.cc' \
      \( -name '*.cc' -o -name '*.h' -o -name '*.cmake' -o -name CMakeLists.txt \) -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
  ) | hash
}

trepak_ready() {
  stamped trepak "$(trepak_key)" && compgen -G "$ROOT/ops/_trepak_ops.tf*.so" >/dev/null
}

install_trepak() {
  local key
  key=$(trepak_key) # Before the build: an edit made meanwhile calls for another one.
  unstamp trepak
  PATH=$VENV/bin:$PATH CMAKE_BUILD_PARALLEL_LEVEL=$JOBS "$VENV/bin/python" -m pip install \
    --disable-pip-version-check --no-input --no-deps --no-build-isolation -v -e "$ROOT"
  stamp trepak "$key"
}

# ------------------------------------------------------------------------------------------------

main() {
  mkdir -p "$(dirname "$LOG")"
  # Two set-ups in one folder (`make train` beside `make test`) take turns.
  exec 9>"$ROOT/build/setup.lock"
  flock 9
  : >"$LOG"
  system_packages
  step 2 "Python packages" python_ready install_python_packages
  HOROVOD_KEY=$(horovod_key)
  local note=''
  if ! horovod_ready && [[ -z $(horovod_wheel) ]]; then
    note=' (a few minutes, once)'
  fi
  step 3 "Horovod $HOROVOD_VERSION$note" horovod_ready install_horovod
  step 4 "trepak" trepak_ready install_trepak
}

case ${1:-all} in
  all) main ;;
  check-packages) check_packages ;;
  horovod-key) horovod_key ;;
  *) die "usage: scripts/setup.sh [check-packages|horovod-key]" ;;
esac
