#!/usr/bin/env bash
# Sets everything up (see cmake/setup.sh), builds and runs all tests. The last line is "N passed, N failed, N skipped";
# the exit code is 0 only if none failed; why one failed is in a line before. Further words go to ctest: ./tests/run.sh -L unit, ./tests/run.sh -R restart
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"

acc_install $acc_build_packages
acc_install_optional $acc_test_packages
acc_need_torch || echo "PyTorch or the Fashion-MNIST images can't be had: the tests that train with them will be skipped" >&2
[ -z "${PYTHON_EXEC:-}" ] || acc_say "Python with torch: $PYTHON_EXEC"
browser_log=$(mktemp)
(acc_install_optional $acc_browser_packages) >"$browser_log" 2>&1 &
browser=$!
acc_build all tests/all
wait "$browser" || true
cat "$browser_log"
rm -f "$browser_log"

acc_say "testing"
cd "$acc_root/build/release"
rm -f tests.xml
status=0
ctest --output-on-failure --no-tests=error --timeout 300 --parallel "${ACC_TEST_JOBS:-$((7 * $(nproc)))}" \
  --output-junit tests.xml "$@" </dev/null || status=$?

python3 "$acc_root/tests/summary.py" tests.xml || status=1
exit "$status"
