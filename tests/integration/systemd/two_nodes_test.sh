#!/usr/bin/env bash
# two_nodes_test.sh PACKAGES: a new operator's walk. Two machines (a real systemd each, joined by a cable) are set up by the lines of
# docs/operations.md as they stand there, and a plain user runs a job on both by one command; a PyTorch job where torch is.
# Exit code 77 (skip) where none can be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packages=$1  # as debian_packages.sh made them
page=$here/../../../docs/operations.md

skip() { echo "SKIP: $*" >&2; exit 77; }
[ "$(id -u)" = 0 ] || skip "a system manager in namespaces needs root"
ls "$packages"/acc_*.deb >/dev/null 2>&1 || skip "no package in $packages"
command -v ip >/dev/null || skip "no ip command (Debian: iproute2)"
cgroups=$(findmnt -nt cgroup2 -o TARGET | head -1)
[ -n "$cgroups" ] || skip "no cgroup v2 file system is mounted"

made=$(mktemp -d)
nodes=()
managers=()
finish() {
  trap - EXIT
  for pid in "${managers[@]}"; do [ ! -p "/proc/$pid/root/run/end" ] || echo >"/proc/$pid/root/run/end"; done
  for node in "${nodes[@]}"; do wait "$node" 2>/dev/null || :; done
  rm -rf "$made"
}
trap finish EXIT

# --- two machines
for n in 1 2; do
  tree=$made/tree$n
  mkdir -p "$tree/etc" "$tree/root/packages" "$tree/srv/work"
  chmod 755 "$tree" "$tree/srv" "$tree/srv/work"
  cp "$packages"/acc_*.deb "$tree/root/packages/"
  printf '127.0.0.1 localhost\n10.89.0.1 node1\n10.89.0.2 node2\n' >"$tree/etc/hosts"
  echo "node$n" >"$tree/etc/hostname"
  "$here/with_systemd.sh" "$tree" sh -c "hostname node$n; mkfifo /run/end; : >/run/is-up; read -r end </run/end" >"$made/console$n" 2>&1 &
  nodes+=($!)
done
manager() { head -1 "$cgroups/acc-systemd-test.$1/init.scope/cgroup.procs" 2>/dev/null || :; }
for node in "${nodes[@]}"; do
  for _ in $(seq 600); do
    pid=$(manager "$node")
    [ -z "$pid" ] || [ ! -e "/proc/$pid/root/run/is-up" ] || break
    kill -0 "$node" 2>/dev/null || { status=0; wait "$node" || status=$?; cat "$made"/console*; exit "$status"; }
    sleep 0.1
  done
  managers+=("$pid")
done
# on N COMMAND…: as root on node N
on() {
  local pid=${managers[$(($1 - 1))]}
  shift
  nsenter -t "$pid" -a -- env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
ip link add "acc$$a" netns "${managers[0]}" type veth peer name "acc$$b" netns "${managers[1]}"
on 1 sh -c "ip addr add 10.89.0.1/24 dev acc$$a && ip link set acc$$a up"
on 2 sh -c "ip addr add 10.89.0.2/24 dev acc$$b && ip link set acc$$b up"

passed=0 failed=0
check() {
  local claim=$1
  shift
  if "$@" >"$made/said" 2>&1; then
    passed=$((passed + 1)) && echo "ok    $claim"
  else
    failed=$((failed + 1)) && echo "FAIL  $claim" && sed 's/^/      /' "$made/said"
  fi
}

# --- the page, line by line: "# COMMAND", and behind two spaces what is to be known about it
mapfile -t lines < <(awk '/^### One command through the daemons/ {here = 1} here && /^```/ {if (++fences == 2) exit} here && fences && sub(/^# /, "") {sub(/  .*/, ""); print}' "$page")
[ "${#lines[@]}" -ge 5 ] || { echo "FAIL  $page has no set-up of the daemons any more"; exit 1; }
for line in "${lines[@]}"; do
  for n in 1 2; do
    case $line in
      *--make_secret*) [ "$n" = 1 ] || continue ;;
      *"acc-ctl nodes"*) continue ;;
    esac
    check "node$n# $line" on "$n" sh -c "cd /root/packages && $line"
  done
  case $line in
    *--make_secret*) check "the secret is copied" sh -c "nsenter -t ${managers[0]} -m cat /etc/acc/secret | nsenter -t ${managers[1]} -m sh -c 'umask 077; cat >/etc/acc/secret'" ;;
  esac
done
for n in 1 2; do on "$n" useradd -m -u 4711 walker; done
check "both nodes are listed" sh -c "nsenter -t ${managers[0]} -a acc-ctl nodes --json | grep -c '\"version\"' | grep -q ."
check "with their slots" sh -c "nsenter -t ${managers[0]} -a acc-ctl nodes | grep -q '^node2 .*[0-9]'"

# --- a job of a plain user
cat >"$made/train.py" <<'PYTHON'
import os, socket
try:
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    world = int(total.item())
except ImportError:
    world = int(os.environ["WORLD_SIZE"])
print(f"rank {os.environ['RANK']} of {world} on {socket.gethostname()}", flush=True)
PYTHON
for n in 1 2; do on "$n" sh -c 'cat >/srv/work/train.py' <"$made/train.py"; done
walker() { on 1 setpriv --reuid=4711 --regid=4711 --clear-groups env HOME=/home/walker USER=walker sh -c "cd /srv/work && $1"; }
check "one command runs a job on both" walker 'acc-launch --hosts node1:1,node2:1 --cpu --max-restarts 3 train.py'
cp "$made/said" "$made/job"
for n in 1 2; do check "rank $((n - 1)) ran on node$n" grep -qx "\[default$((n - 1))\]:rank $((n - 1)) of 2 on node$n" "$made/job"; done
check "too many slots are refused with the cure" sh -c "nsenter -t ${managers[0]} -a acc-launch --hosts node1:900,node2:1 --cpu --no_python true 2>&1 | grep 'raise that in the settings'"
check "a job is left running" walker 'id=$(acc-launch --detach --hosts node1:1,node2:1 --cpu --no_python sleep 100000) && echo "$id" >/home/walker/id'
worker_on_node2() { on 2 pgrep -u 4711 -x sleep; }
check "its worker runs on node2" sh -c "for i in \$(seq 100); do nsenter -t ${managers[1]} -a pgrep -u 4711 -x sleep && exit 0; sleep 0.1; done; exit 1"
worker=$(worker_on_node2 || :)
# The daemon alone: without --kill-whom it is every process of the service, and so the jobs too.
on 2 systemctl kill --kill-whom=main -s KILL acc-agent
check "node2's daemon is back after SIGKILL" sh -c "for i in \$(seq 100); do nsenter -t ${managers[0]} -a acc-ctl nodes 2>/dev/null | grep -q '^node2 .*0.*[0-9]' && exit 0; sleep 0.1; done; exit 1"
check "the job runs" walker 'acc-ctl status "$(cat ~/id)" | grep -q running'
check "with the worker that it had on node2" test "$(worker_on_node2)" = "$worker"
check "it is stopped on both" walker 'acc-ctl stop --grace 1 "$(cat ~/id)" && for i in $(seq 100); do acc-ctl status "$(cat ~/id)" 2>&1 | grep -q "running\|stopping" || exit 0; sleep 0.1; done; exit 1'
check "nothing of it is left on node2" sh -c "for i in \$(seq 100); do nsenter -t ${managers[1]} -a pgrep -u walker || exit 0; sleep 0.1; done; exit 1"

echo "$passed passed, $failed failed"
if [ "$failed" -gt 0 ]; then
  for n in 1 2; do on "$n" journalctl -u acc-agent --no-pager -o short-monotonic | tail -30; done
  exit 1
fi
