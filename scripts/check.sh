#!/usr/bin/env bash
# Runs every check, or the stages that are named:
#
#   scripts/check.sh [ruff] [format] [mypy] [clang-format] [pytest] [native]
#
# A stage that fails doesn't stop the others; the failed ones are listed at the end. Before `native`
# has its turn, its tests are built while pytest runs.

set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
ALL_STAGES=(ruff format mypy clang-format pytest native)
JOBS=${JOBS:-$(getconf _NPROCESSORS_ONLN)}
export PATH=$PWD/.venv/bin:$PATH
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
if [[ $(id -u) == 0 ]]; then
  # In a container root is the only user, and OpenMPI refuses to start as root unless told twice.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# The folders are installed as trepak.X; mypy doesn't follow editable installs that rename folders,
# so it gets the same tree made of links.
stage_mypy() {
  local tree=build/typing entry
  rm -rf "$tree"
  mkdir -p "$tree/trepak"
  for entry in trepak/* tf_plugins horovod_ext ops models scripts; do
    ln -s "$PWD/$entry" "$tree/trepak/$(basename "$entry")"
  done
  # Errors are shown with the paths of the checkout.
  (cd "$tree" && mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p trepak) |
    sed -E 's#^trepak/(tf_plugins|horovod_ext|ops|models|scripts)/#\1/#'
}

stage_ruff() { ruff check .; }

stage_format() { ruff format --check .; }

stage_clang_format() {
  find ops -name '*.cc' -o -name '*.h' | xargs clang-format --dry-run -Werror
}

# What is built: a folder of build, and options of CMake. Sanitizers watch the runtime's own tests;
# TensorFlow is not instrumented, so that its ops' tests are built for themselves.
declare -A NATIVE=(
  [native-plain]="-DTREPAK_BUILD_OPS=ON -DTREPAK_BUILD_RUNTIME_TESTS=OFF -DTREPAK_PYTHON=$PWD/.venv/bin/python"
  [native-address]="-DTREPAK_SANITIZE=address,undefined"
  [native-thread]="-DTREPAK_SANITIZE=thread"
)

# native_build NAME: builds in build/NAME; says why if it can't.
native_build() {
  local name=$1 log=build/logs/$1.log
  # Sources are compiled many at a time; that each includes what it needs, the set-up has shown.
  local unity=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=10)
  mkdir -p build/logs
  # shellcheck disable=SC2086  # several options
  if ! { cmake -S . -B "build/$name" "${unity[@]}" ${NATIVE[$name]} &&
    cmake --build "build/$name" -j "$JOBS"; } >"$log" 2>&1; then
    echo "$name: the build failed; the last lines of $log:"
    tail -n 40 "$log"
    return 1
  fi
}

# native_test NAME: runs the tests that have been built.
native_test() {
  local name=$1 log=build/logs/$1-tests.log prefix=()
  # Some kernels place memory where this compiler's thread sanitizer can't cope unless address
  # randomization is off; some containers forbid to turn it off.
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    prefix=(setarch "$(uname -m)" -R)
  fi
  echo "$name:"
  "${prefix[@]}" ctest --test-dir "build/$name" -j "$JOBS" --output-on-failure --no-tests=error \
    >"$log" 2>&1 || { cat "$log"; return 1; }
  grep 'tests passed' "$log"
}

# The builds with sanitizers; `native` makes them too where that has not been done.
stage_native_build() {
  local failed=0
  native_build native-address || failed=1
  native_build native-thread || failed=1
  return "$failed"
}

# Jobs of tests leave the cores idle again and again, which is enough to compile beside them. In a
# session of its own, because Linux shares cores out between sessions whatever their niceness.
NATIVE_BUILD=
start_native_build() {
  setsid bash -c 'echo 19 >/proc/self/autogroup; exec nice -n 19 scripts/check.sh native-build' \
    >/dev/null 2>&1 &
  NATIVE_BUILD=$!
  trap 'kill -- "-$NATIVE_BUILD" 2>/dev/null' EXIT
}

stage_native() {
  local failed=0
  if [[ -n $NATIVE_BUILD ]]; then
    wait "$NATIVE_BUILD"
    trap - EXIT
  fi
  { native_build native-plain && native_test native-plain; } || failed=1
  # Two fuzzers of half a minute each, where a bad read is seen at once.
  { native_build native-address && FUZZ_SECONDS=30 native_test native-address; } || failed=1
  { native_build native-thread && native_test native-thread; } || failed=1
  return "$failed"
}

# Two processes: while one test waits, for a deadline say, another one computes. With more, ranks
# that have deadlines would get too little of the cores.
stage_pytest() { python -m pytest -q -n 2 ${PYTEST_ARGS:-}; }

main() {
  local stages=("$@") failed=() timings=() stage start
  ((${#stages[@]})) || stages=("${ALL_STAGES[@]}")
  for stage in "${stages[@]}"; do
    if [[ " ${ALL_STAGES[*]} native-build " != *" $stage "* ]]; then
      echo "no stage named $stage; there are: ${ALL_STAGES[*]}" >&2
      exit 2
    fi
  done
  trap 'exit 130' INT  # pytest takes it for itself, and the next stage would go on
  if [[ " ${stages[*]} " == *" pytest "*"native "* ]]; then
    start_native_build
  fi
  for stage in "${stages[@]}"; do
    echo "== $stage"
    start=$SECONDS
    if ! "stage_${stage//-/_}" </dev/null; then
      failed+=("$stage")
    fi
    timings+=("$stage $((SECONDS - start)) s")
  done
  echo
  printf -v summary '%s, ' "${timings[@]}"
  echo "Checked: ${summary%, }"
  if ((${#failed[@]})); then
    echo "FAILED: ${failed[*]}"
    exit 1
  fi
  echo "All checks passed."
}

main "$@"
