#!/usr/bin/env bash
# Runs inside the system that package_test.sh boots: the life of the package acc, as an operator sees it.
set -uo pipefail
. "$(dirname "$0")/agent_claims.sh"
deb=$(dirname "$0")/acc.deb
has() { [ -e "$1" ] || { echo "      there is no $1"; return 1; }; }
gone() { { [ ! -e "$1" ] && [ ! -L "$1" ]; } || { echo "      still there: $1"; return 1; }; }

echo "-- install"
check "dpkg installs it" dpkg -i "$deb"
for file in /usr/bin/acc-launch /usr/bin/acc-agent /usr/bin/acc-ctl /lib/systemd/system/acc-agent.service /etc/acc/jobs.d \
  /usr/share/man/man1/acc-agent.1.gz /usr/share/bash-completion/completions/acc-ctl; do
  check "$file is there" has "$file"
done
check "nothing was started unasked" sh -c '! systemctl is-active --quiet acc-agent'
check "one command starts it, now and at each boot" systemctl enable --now acc-agent

echo "-- an upgrade under a running job"
id=$(submit --name long -- --cpu --num_processes 1 --no_python /bin/sleep 100000)
check "a job runs" soon 5 is_job "$id" state running
guardian=$(field "$id" pid)
before=$(show MainPID)
check "dpkg installs the next one" dpkg -i "$deb"
check "another daemon serves" sh -c "[ \"\$(systemctl show --value -p MainPID acc-agent)\" != $before ]"
check "the job lives on" is_job "$id" pid "$guardian"
check "as the daemon's" is_job "$id" state running

echo "-- removal, also under jobs that need a second for their checkpoint"
printf '%s\n' '#!/bin/bash' 'trap "sleep 1; echo weights >$1; exit" TERM' 'touch $1.begun; while :; do sleep 0.1; done' >/srv/acc/saves.sh
chmod +x /srv/acc/saves.sh
printf '%s\n' 'compute_environment: LOCAL_MACHINE' 'distributed_type: MULTI_CPU' 'num_processes: 1' 'use_cpu: true' 'no_python: true' 'script: /srv/acc/saves.sh' 'script_args: [checkpoint]' >/etc/acc/train.yaml
check "an instance of acc-launch@ runs" systemctl enable --now acc-launch@train
saves=$(submit --name saves -- --cpu --num_processes 1 --no_python /srv/acc/saves.sh /srv/acc/saved)
check "and another job of the daemon" soon 5 has /srv/acc/saved.begun
check "both workers have begun" soon 5 has /var/lib/acc/train/checkpoint.begun
check "dpkg removes it" dpkg -r acc
check "the daemon is gone" sh -c '! pgrep -x acc-agent'
check "and so are the jobs that nothing would supervise any more" sh -c "! kill -0 $guardian 2>/dev/null"
check "all of them" sh -c '! pgrep -x acc-launch'
check "they have saved before" has /srv/acc/saved
check "the one of acc-launch@ too" has /var/lib/acc/train/checkpoint
check "and isn't started at the next boot" gone /etc/systemd/system/multi-user.target.wants/acc-launch@train.service
check "nor is the daemon" gone /etc/systemd/system/multi-user.target.wants/acc-agent.service
check "the job's end is noted" grep -q 143 "/var/lib/acc/jobs/$saves/user/exit.json"
check "the jobs' folders stay" has "/var/lib/acc/jobs/$id/job.json"
check "the program is gone" gone /usr/bin/acc-agent
touch /etc/acc/secret
check "dpkg purges it" dpkg -P acc
check "the jobs' folders are gone" gone /var/lib/acc/jobs
check "and all that is the daemon's" test "$(ls /var/lib/acc)" = train
check "the checkpoints of acc-launch@ stay" has /var/lib/acc/train/checkpoint
rm -r /var/lib/acc/train
check "it is installed and purged again" sh -c "dpkg -i $deb >/dev/null && systemctl start acc-agent && dpkg -P acc"
check "without checkpoints there nothing is left" gone /var/lib/acc
check "what the operator wrote stays" has /etc/acc/secret

[ "$failed" -eq 0 ] || journalctl -u acc-agent --no-pager -o short-monotonic | tail -60
tally
