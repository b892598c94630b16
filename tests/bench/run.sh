#!/bin/bash
# Measures acc-launch beside its peers in one run and prints ratios: run.sh [launch_bench.py's options].
# Peers that aren't installed are left out and said so; Debian has them as openmpi-bin, mpich, python3-torch.
set -eu
cd "$(dirname "$0")/../.."
. cmake/setup.sh
acc_install $acc_build_packages
acc_build acc-launch
exec python3 tests/bench/launch_bench.py --acc-launch build/release/bin/acc-launch --base cfloor \
  --ns 1,8,64,256 --reps 5 "$@"
