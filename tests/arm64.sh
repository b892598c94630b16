#!/usr/bin/env bash
# Cross-compiles everything for aarch64 (preset arm64, warnings are errors), and runs the unit tests under qemu-user. Tests that it
# can't run are named, and run in a virtual machine instead with --machine.
#   ./tests/arm64.sh [--machine] [--build] [words for ctest, such as -R runtime]     --build: no tests
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"

tests=yes machine=no
while :; do
  case ${1:-} in
    --machine) machine=yes ;;
    --build) tests=no ;;
    *) break ;;
  esac
  shift
done
# shellcheck disable=SC2086
acc_install $acc_build_packages $acc_cross_packages $([ $machine = no ] || echo $acc_machine_packages)
"$acc_root/cmake/arm64/root.sh"

acc_preset=arm64
[ $tests = yes ] || { acc_build all; exit; }
acc_build all tests/all

acc_say "testing under qemu-user"
cd "$acc_root"
python3 tests/arm64/emulated.py
status=0
ctest --preset arm64 --no-tests=error --parallel "${ACC_TEST_JOBS:-$(nproc)}" "$@" </dev/null || status=$?
if [ $machine = yes ]; then
  acc_say "testing in a virtual machine"
  python3 tests/arm64/machine.py || status=1
fi
exit $status
