#!/usr/bin/env bash
# Long runs, for before a release: soak.sh [MINUTES, default 10].
# Ten thousand restarts must leave descriptors, memory, zombies and cgroups as they were; then our processes are killed
# in every phase and at random moments until the time is up.
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"
minutes=${1:-10}
acc_install $acc_build_packages $acc_test_packages
acc_build acc-launch fake_worker
export ACC_BIN=$acc_bin PYTHONDONTWRITEBYTECODE=1
end=$((SECONDS + minutes * 60))
acc_say "10,000 restarts"
ACC_SOAK_RESTARTS=10000 python3 "$acc_root/tests/integration/test_faults.py" Soak
rounds=0
while [ $SECONDS -lt $end ]; do
  python3 "$acc_root/tests/integration/test_kill.py" -q
  rounds=$((rounds + 1))
done
acc_say "soak passed: 10,000 restarts, the kill tests $rounds times"
