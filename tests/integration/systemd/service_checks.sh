#!/usr/bin/env bash
# Runs inside the system that service_test.sh boots: what an operator can rely on, checked one by one.
set -uo pipefail
passed=0
failed=0
systemctl log-target journal  # a unit that ended well is forgotten at once; the journal still knows how it ended

unit() { echo "acc-launch@$1.service"; }
show() { systemctl show --value -p "$2" "$(unit "$1")"; }
notes() { echo "/run/acc-test/$1"; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# check CLAIM COMMAND…: the command succeeds
check() {
  local claim=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
    echo "ok    $claim"
  else
    failed=$((failed + 1))
    echo "FAIL  $claim"
  fi
}
# is NAME PROPERTY WANTED
is() {
  local got
  got=$(show "$1" "$2")
  [ "$got" = "$3" ] && return
  echo "      $2 of $1 is '$got', not '$3'"
  return 1
}
# soon SECONDS COMMAND…: true as soon as the command is; false at the deadline
soon() {
  local end=$(($(now_ms) + $1 * 1000))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(now_ms)" -lt "$end" ] || { echo "      still not: $*"; return 1; }
    sleep 0.05
  done
}
lines() { [ "$(wc -l 2>/dev/null <"$1")" = "$2" ]; }
# Every process that a job ever started and wrote down is gone.
all_gone() {
  local pid
  for pid in $(cat "$(notes "$1")/pids"); do
    if [ -e "/proc/$pid" ]; then
      echo "      still there: $(tr '\0' ' ' <"/proc/$pid/cmdline") (pid $pid)"
      return 1
    fi
  done
}
# No pipe into grep -q: it ends at the first match, and under pipefail the SIGPIPE of what writes would count.
journal_has() { grep -qF "$3" <<<"$(journalctl -u "$(unit "$1")" -o json --no-pager | grep -F "\"ACC_RANK\":\"$2\"")"; }
journal_says() { grep -q "$2" <<<"$(journalctl -u "$(unit "$1")" -o cat --no-pager)"; }
agent_of() { pgrep -P "$(show "$1" MainPID)" | head -1; }

echo "-- a steady job"
check "start returns when the service is ready" systemctl start "$(unit steady)"
check "it is active" is steady ActiveState active
check "both workers run" soon 2 lines "$(notes steady)/started" 2
check "the status line says what runs" grep -q '2 workers' <<<"$(show steady StatusText)"
echo "      status: $(show steady StatusText)"
check "the journal knows the rank of a line" soon 5 journal_has steady 1 "hello from rank 1"
check "and of the other worker's" soon 5 journal_has steady 0 "hello from rank 0"
before=$(now_ms)
check "stop succeeds" systemctl stop "$(unit steady)"
took=$(($(now_ms) - before))
check "stop took $took ms: workers that obey SIGTERM don't use up the grace" test "$took" -lt 3000
check "both workers were asked by SIGTERM" lines "$(notes steady)/terminated" 2
check "nothing is left, sessions of their own included" all_gone steady
check "it is inactive, not failed" is steady ActiveState inactive
check "the exit code is 143, which counts as a success" grep -qx 'success exited 143' "$(notes steady)/end"

echo "-- a job that ignores SIGTERM"
systemctl start "$(unit stubborn)"
soon 2 lines "$(notes stubborn)/started" 2
before=$(now_ms)
systemctl stop "$(unit stubborn)"
took=$(($(now_ms) - before))
check "stop took $took ms: the grace of 15 s, and no more than 5 s on top" test "$took" -ge 14000 -a "$took" -lt 20000
check "nothing is left" all_gone stubborn
check "acc-launch ended by itself, systemd had nothing to kill" soon 5 journal_says stubborn 'Deactivated successfully'

echo "-- a job that fails"
systemctl start "$(unit failing)" 2>/dev/null
check "it ends as failed" soon 10 is failing ActiveState failed
check "with the worker's exit code" is failing ExecMainStatus 7
check "systemd doesn't start it again" is failing NRestarts 0
check "nothing is left" all_gone failing
check "the report is in the journal" soon 5 journal_says failing 'rank 1.*7\|7.*rank 1' 

echo "-- a job that acc-launch restarts"
systemctl start "$(unit recovering)"
check "both workers run in the second attempt" soon 10 lines "$(notes recovering)/started" 3
check "the service stayed active meanwhile" is recovering ActiveState active
check "and systemd saw no restart" is recovering NRestarts 0
systemctl stop "$(unit recovering)"
check "nothing is left" all_gone recovering

echo "-- jobs that cannot start"
systemctl start "$(unit missing)" 2>/dev/null
check "a program that doesn't exist: failed, 127" is missing ExecMainStatus 127
check "it was never active" is missing ActiveEnterTimestampMonotonic 0
check "and isn't tried again" is missing NRestarts 0
systemctl start "$(unit misspelt)" 2>/dev/null
check "a misspelt key: failed, 2" is misspelt ExecMainStatus 2
check "and isn't tried again" is misspelt NRestarts 0
check "the journal names the key" soon 5 journal_says misspelt num_proceses
check "an instance without a file: start fails" sh -c '! systemctl start acc-launch@typo.service 2>/dev/null'
check "it is failed, 2" is typo ExecMainStatus 2
check "and isn't tried again" is typo NRestarts 0
check "the journal names the file" soon 5 journal_says typo '/etc/acc/typo.yaml'

echo "-- SIGKILL of the main process"
systemctl start "$(unit killed)"
soon 2 lines "$(notes killed)/started" 2
kill -9 "$(show killed MainPID)"
check "nothing is left after a second" soon 1 all_gone killed
check "systemd will start it again" soon 2 is killed SubState auto-restart
systemctl stop "$(unit killed)"

echo "-- an agent that hangs"
systemctl start "$(unit hanging)"
soon 2 lines "$(notes hanging)/started" 2
first=$(show hanging MainPID)
kill -STOP "$(agent_of hanging)"
check "the watchdog catches it" soon 10 journal_says hanging 'Watchdog timeout'
check "the job starts again" soon 10 lines "$(notes hanging)/started" 4
check "with a new main process" test "$(show hanging MainPID)" != "$first"
check "once" is hanging NRestarts 1
systemctl stop "$(unit hanging)"
check "nothing is left" all_gone hanging

echo "-- the job of examples/06_service"
check "it starts" systemctl start "$(unit hello)"
check "it works" soon 5 journal_says hello 'rank 0: working'
check "with both workers" soon 5 journal_says hello 'rank 1: working'
check "it stops" systemctl stop "$(unit hello)"
check "both workers saved" soon 5 journal_says hello 'rank 0: saved at second'
check "and said so in the journal" soon 5 journal_says hello 'rank 1: saved at second'

if [ "$failed" -gt 0 ]; then
  echo "-- the journal of the jobs"
  journalctl -u 'acc-launch@*' --no-pager -o short-monotonic | tail -150
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
