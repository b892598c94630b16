#!/bin/bash
# Measures what we have beside its peers, in one run, and prints tables with ratios. `--quick`: a smoke test. Without arguments it
# renews docs/benchmarks.json, docs/benchmarks.md, its plots and the tables of README.md: compare.sh [compare's options].
# On a bare Debian it installs what the build needs and the peers that Debian has, and builds; measuring takes under ten minutes.
# As root, since the service and the hosts are measured in namespaces of their own.
set -eu
cd "$(dirname "$0")/../.."
. cmake/setup.sh
acc_install $acc_build_packages
acc_install_optional python3-torch supervisor openmpi-bin libopenmpi-dev mpich libmpich-dev etcd-server openssh-client openssh-server systemd dbus iproute2
acc_find_torch || acc_say "no Python has torch: its rows will be absent"
acc_build acc-launch acc-agent acc-ctl acc-bench-rendezvous acc-bench-collectives acc-bench-overlap acc-bench-heartbeat fake_worker
[ $# -gt 0 ] || set -- --write
exec python3 tests/bench/compare --bin build/release/bin "$@"
