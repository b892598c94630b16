#!/usr/bin/env bash
# agent_reboot.sh down|up: runs inside the systems that agent_test.sh boots one after the other, with the same /srv/kept: what becomes of the
# jobs of acc-agent at a shutdown, and at the next boot.
set -uo pipefail
. "$(dirname "$0")/agent_claims.sh"
kept=/srv/kept

mkdir -p /var/lib/acc "$kept/acc"
mount --bind "$kept/acc" /var/lib/acc

if [ "$1" = down ]; then
  # Saves for a second, and on a file system that is gone at a shutdown when remote-fs.target has been stopped.
  cat >"$kept/worker.sh" <<'WORKER'
#!/bin/bash
trap 'sleep 1; ls /srv/kept/is-mounted >/dev/null && echo saved >>"/srv/kept/$1.saved"; exit 0' TERM
echo started >>"/srv/kept/$1.started"
while :; do sleep 1000 & wait $!; done
WORKER
  chmod +x "$kept/worker.sh"
  touch "$kept/is-mounted"
  cat >/etc/systemd/system/probe.service <<PROBE
[Unit]
Description=Says how many workers live when the network file systems are to be unmounted
Before=remote-fs.target network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStop=/bin/sh -c 'pgrep -c -f [w]orker.sh >$kept/workers-at-unmount; rm $kept/is-mounted'
PROBE
  systemctl daemon-reload
  systemctl start probe remote-fs.target network-online.target acc-agent
  submit --name plain -- --cpu --num_processes 2 --no_python "$kept/worker.sh" plain >"$kept/plain"
  submit --name again --restart on-failure -- --cpu --num_processes 1 --no_python "$kept/worker.sh" again >"$kept/again"
  soon 5 is_job boot state running
  soon 5 grep -c started "$kept/again.started"
  soon 5 sh -c "[ \$(wc -l <$kept/plain.started) = 2 ]"
  echo "-- the system is shut down"
  journalctl -f -n 0 -o cat -u acc-agent-jobs -u acc-agent >"$kept/journal" &
  systemctl poweroff 2>/dev/null
  exit
fi

echo "-- after a reboot"
is_text() { [ "$(cat "$kept/$1")" = "$2" ] || { echo "      $1 is '$(cat "$kept/$1")', not '$2'"; return 1; }; }
check "no worker was left when the network file systems were unmounted" is_text workers-at-unmount 0
check "both workers of the job had saved" is_text plain.saved $'saved\nsaved'
check "and the one of the other job" is_text again.saved saved
[ "$failed" = 0 ] || cat "$kept/journal"
check "acc-agent starts" systemctl start acc-agent
check "the job ended as at SIGTERM" is_job "$(cat "$kept/plain")" exit_code 143
check "and isn't started again" is_job "$(cat "$kept/plain")" state stopped
check "the one with a restart rule runs again" soon 10 is_text again.started $'started\nstarted'
check "so says its state" is_job "$(cat "$kept/again")" state running
check "and the one of jobs.d" soon 10 is_job boot state running
tally
