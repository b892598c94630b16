#!/usr/bin/env bash
# service_test.sh ACC_LAUNCH: the unit of configs/systemd under a real systemd. Exit code 77 (skip) where none can be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
unit=$here/../../../configs/systemd/acc-launch@.service

if [ "$(id -u)" != 0 ]; then
  echo "SKIP: a system manager in namespaces needs root" >&2
  exit 77
fi
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{usr/bin,etc/systemd/system,etc/acc,srv/acc}
cp "$program" "$tree/usr/bin/acc-launch"
cp "$unit" "$tree/etc/systemd/system/"
cp "$here/test_job.sh" "$here/service_checks.sh" "$tree/srv/acc/"
cp "$here/../../../examples/06_service/job.sh" "$tree/srv/acc/"
cp "$here/../../../examples/06_service/job.yaml" "$tree/etc/acc/hello.yaml"

# job NAME MAX_RESTARTS WORDS…: /etc/acc/NAME.yaml, two workers of test_job.sh
job() {
  local name=$1 restarts=$2
  shift 2
  printf '%s\n' "compute_environment: LOCAL_MACHINE" "distributed_type: MULTI_CPU" "num_processes: 2" "use_cpu: true" \
    "max_restarts: $restarts" "no_python: true" "script: /srv/acc/test_job.sh" "script_args: [$name$(printf ', %s' "$@")]" \
    >"$tree/etc/acc/$name.yaml"
}
job steady 0 run
job stubborn 0 ignore_term
job failing 0 fail
job missing 0 run
sed -i 's#^script: .*#script: /srv/acc/no-such-program#' "$tree/etc/acc/missing.yaml"
printf 'distributed_type: MULTI_CPU\nnum_proceses: 2\n' >"$tree/etc/acc/misspelt.yaml"
job recovering 1 fail_once
job hanging 0 run
job killed 0 run
# Drop-ins make the slow parts quick; the unit itself stays as it is shipped.
drop_in() {
  mkdir -p "$tree/etc/systemd/system/acc-launch@$1.service.d"
  printf '[Service]\n%s\n' "$2" >"$tree/etc/systemd/system/acc-launch@$1.service.d/test.conf"
}
drop_in steady "ExecStopPost=/bin/sh -c 'echo \"\$SERVICE_RESULT \$EXIT_CODE \$EXIT_STATUS\" >/run/acc-test/steady/end'"
drop_in hanging $'WatchdogSec=2\nRestartSec=100ms'
drop_in killed 'RestartSec=1min'

# Not exec: the trap removes the tree.
"$here/with_systemd.sh" "$tree" /srv/acc/service_checks.sh
