# shellcheck shell=bash
# What agent_checks.sh and package_checks.sh say and ask about acc-agent. To be sourced.
passed=0
failed=0
systemctl log-target journal  # what systemd says of the unit, too

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
# soon SECONDS COMMAND…: true as soon as the command is; false at the deadline
soon() {
  local end=$(($(now_ms) + $1 * 1000))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(now_ms)" -lt "$end" ] || { echo "      still not: $*"; return 1; }
    sleep 0.05
  done
}
show() { systemctl show --value -p "$1" acc-agent; }
is() { [ "$(show "$1")" = "$2" ] || { echo "      $1 is '$(show "$1")', not '$2'"; return 1; }; }
# field ID NAME: of one job
field() { acc-ctl status "$1" --json 2>/dev/null | python3 -c 'import json, sys; print((json.loads(sys.stdin.read() or "{}")).get(sys.argv[1]))' "$2"; }
is_job() { [ "$(field "$1" "$2")" = "$3" ] || { echo "      $2 of $1 is '$(field "$1" "$2")', not '$3'"; return 1; }; }
submit() { acc-ctl submit --detach "$@"; }
journal_says() { grep -q "$1" <<<"$(journalctl -u acc-agent -o cat --no-pager)"; }
cgroup_of() { sed -n 's/^0:://p' "/proc/$1/cgroup"; }
# The last line, and whether all held.
tally() {
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}
