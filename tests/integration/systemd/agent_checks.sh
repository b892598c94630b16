#!/usr/bin/env bash
# Runs inside the system that agent_test.sh boots: what an operator of acc-agent can rely on, checked one by one.
set -uo pipefail
. "$(dirname "$0")/agent_claims.sh"

echo "-- start"
check "start returns when the socket answers" systemctl start acc-agent
check "it is active" is ActiveState active
check "the health check answers" curl -sf --unix-socket /run/acc/agent.sock http://acc/healthz -o /dev/null
check "the status line says what it has" grep -q 'of 8 slots free' <<<"$(show StatusText)"
echo "      status: $(show StatusText)"
check "the job of jobs.d runs" soon 5 is_job boot state running

echo "-- a job"
id=$(submit --name long -- --cpu --num_processes 2 --no_python /bin/sleep 100000)
check "the id is printed alone" grep -qx 'long-[a-z0-9]*' <<<"$id"
check "it runs" soon 5 is_job "$id" state running
guardian=$(field "$id" pid)
check "its guardian is in a group of its own below the unit's" grep -q 'acc-agent.service/.*'"$id" <<<"$(cgroup_of "$guardian")"
code=$(submit --name quick -- --cpu --num_processes 1 --no_python /bin/sh -c 'exit 7')
check "a job that fails has its exit code" soon 5 is_job "$code" exit_code 7

echo "-- a restart, a crash, a hang, a stop: the job lives on"
check "restart" systemctl restart acc-agent
check "the same guardian" is_job "$id" pid "$guardian"
main=$(show MainPID)
kill -9 "$main"
check "after SIGKILL systemd starts it again" soon 10 systemctl is-active --quiet acc-agent
check "with another main process" soon 5 sh -c "[ \"\$(systemctl show --value -p MainPID acc-agent)\" != $main ]"
check "the job is found again" soon 5 is_job "$id" pid "$guardian"
kill -STOP "$(show MainPID)"
check "the watchdog catches a daemon that hangs" soon 10 journal_says 'Watchdog timeout'
check "and another one serves" soon 10 is_job "$id" pid "$guardian"
check "stop" systemctl stop acc-agent
check "the job runs without the daemon" kill -0 "$guardian"
quiet=$(now_ms)
check "start again" systemctl start acc-agent
echo "      took $(($(now_ms) - quiet)) ms"
check "the job is the daemon's again" is_job "$id" state running
check "stop of the job" acc-ctl stop "$id"
check "it is stopped" soon 10 is_job "$id" state stopped
check "its guardian is gone" sh -c "! kill -0 $guardian 2>/dev/null"

echo "-- jobs.d"
printf 'nonsense: [\n' >/etc/acc/jobs.d/broken.yaml
check "reload" systemctl reload acc-agent
check "an invalid file is refused by name" soon 5 journal_says 'broken'
check "the other one runs on" is_job boot state running
rm /etc/acc/jobs.d/broken.yaml /etc/acc/jobs.d/boot.yaml
check "reload" systemctl reload acc-agent
check "the job of a removed file is ended" soon 10 is_job boot state stopped

echo "-- the daemon and all jobs are stopped"
id=$(submit --name saves -- --cpu --num_processes 1 --no_python /bin/sh -c 'trap "sleep 1; touch /srv/acc/saved; exit" TERM; touch /srv/acc/begun; while :; do sleep 0.1; done')
check "a job runs" soon 5 test -e /srv/acc/begun
guardian=$(field "$id" pid)
check "stop of acc-agent-jobs waits for the checkpoint" sh -c 'systemctl stop acc-agent-jobs && test -e /srv/acc/saved'
check "nothing is left of the job" sh -c "! kill -0 $guardian 2>/dev/null"
check "and the daemon is stopped" is ActiveState inactive
check "start of acc-agent is enough for both" systemctl start acc-agent
check "both are active" systemctl is-active --quiet acc-agent acc-agent-jobs
check "the job was stopped" is_job "$id" state stopped
check "as at SIGTERM" is_job "$id" exit_code 143

echo "-- the unit"
check "systemd-analyze verifies it" systemd-analyze verify --man=no acc-agent.service acc-agent-jobs.service

if [ "$failed" -gt 0 ]; then
  echo "-- the journal"
  journalctl -u acc-agent --no-pager -o short-monotonic | tail -100
fi
tally
