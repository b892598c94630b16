#!/usr/bin/env bash
# agent_test.sh BIN: acc-agent.service under a real systemd. Exit code 77 (skip) where none can be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(realpath "$1")
configs=$here/../../../configs

if [ "$(id -u)" != 0 ]; then
  echo "SKIP: a system manager in namespaces needs root" >&2
  exit 77
fi
tree=$(mktemp -d)
kept=$(mktemp -d)
trap 'rm -rf "$tree" "$kept"' EXIT
mkdir -p "$tree"/{usr/bin,usr/libexec/acc,usr/lib/tmpfiles.d,etc/systemd/system/acc-agent.service.d,etc/acc/jobs.d,srv/acc}
cp "$bin"/acc-{launch,agent,ctl} "$tree/usr/bin/"
cp "$configs"/systemd/acc-agent{,-jobs}.service "$tree/etc/systemd/system/"
cp "$configs/systemd/acc-stop-jobs" "$tree/usr/libexec/acc/"
cp "$configs/systemd/acc.tmpfiles" "$tree/usr/lib/tmpfiles.d/acc.conf"
cp "$here"/agent_{checks,claims,reboot}.sh "$tree/srv/acc/"
echo '{"slots": 8}' >"$tree/etc/acc/agent.json"
printf '%s\n' 'distributed_type: MULTI_CPU' 'use_cpu: true' 'num_processes: 1' 'no_python: true' 'script: /bin/sleep' 'script_args: ["100000"]' >"$tree/etc/acc/jobs.d/boot.yaml"
# A drop-in makes the slow part quick; the unit itself stays as it is shipped.
printf '[Service]\nWatchdogSec=2\nRestartSec=100ms\n' >"$tree/etc/systemd/system/acc-agent.service.d/test.conf"

# Not exec: the trap removes the tree.
"$here/with_systemd.sh" "$tree" /srv/acc/agent_checks.sh

# A reboot: what is kept over it are the jobs of the daemon and a folder that stands for a network file system.
export KEPT=$kept
SHUT_DOWN=1 "$here/with_systemd.sh" "$tree" /srv/acc/agent_reboot.sh down
"$here/with_systemd.sh" "$tree" /srv/acc/agent_reboot.sh up
