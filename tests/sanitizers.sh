#!/usr/bin/env bash
# Builds and tests with each sanitizer: ./tests/sanitizers.sh [asan] [tsan] (both by default; asan includes UBSan).
# Last lines: one per preset, ok or FAILED. Words after -- go to ctest: ./tests/sanitizers.sh asan -- -L agent
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"
acc_install $acc_build_packages $acc_test_packages

presets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do presets+=("$1"); shift; done
[ "${1:-}" != -- ] || shift
[ ${#presets[@]} -gt 0 ] || presets=(asan tsan)

# A finding ends the program with a code that no test expects. The leak check works on the whole program.
export ASAN_OPTIONS=exitcode=86:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS="exitcode=86:second_deadlock_stack=1:atexit_sleep_ms=50:suppressions=$acc_root/tests/tsan.supp"

cd "$acc_root"
verdicts=()
failed=0
for preset in "${presets[@]}"; do
  acc_say "preset $preset"
  # Real PyTorch and the systemd test say nothing about our memory and are slow here.
  if cmake --preset "$preset" >/dev/null && cmake --build --preset "$preset" --parallel "$(nproc)" &&
    ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --timeout 600 \
      --parallel "${ACC_TEST_JOBS:-$(nproc)}" --label-exclude 'torch|systemd' "$@" </dev/null; then
    verdicts+=("$preset: ok")
  else
    verdicts+=("$preset: FAILED")
    failed=1
  fi
done
printf '%s\n' "${verdicts[@]}"
exit "$failed"
