#!/usr/bin/env bash
# with_systemd.sh TREE COMMAND…
# Boots a real systemd as PID 1 of fresh PID, mount, network, IPC, UTS and cgroup namespaces, over a copy-on-write view of
# this machine's root in which the folder TREE is laid over /. Runs COMMAND in there as root, then ends everything.
# Nothing is written to the machine's disk, but for the folder KEPT, if that variable is set: it is /srv/kept in there, and stays for the
# next boot. With SHUT_DOWN=1 the command ends with `systemctl poweroff`, and the system's end is waited for. Exit code: the command's; 77 where this can't be done, with the reason.
# Mind: systemd empties /tmp when it boots, so a TREE puts its files elsewhere (/srv, /etc, /usr).
set -euo pipefail

skip() { echo "SKIP: $*" >&2; exit 77; }

# --- second half: first process of the new namespaces. Builds the root, goes there and becomes systemd.
become_systemd() {
  local work=$1 tree=$2 root=$1/fs/root node
  mkdir "$work/fs"
  mount -t tmpfs tmpfs "$work/fs"
  mkdir "$work/fs/changes" "$work/fs/scratch" "$root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/fs/changes,workdir=$work/fs/scratch" "$root"
  cp -a "$tree/." "$root/"
  rm -f "$root/var/lib/man-db/auto-update"  # or each package has the manual pages of all others read again
  if [ -n "${KEPT:-}" ]; then
    mkdir "$root/srv/kept"
    mount --bind "$KEPT" "$root/srv/kept"
  fi
  # Waiting for the network of a machine that has none would only cost time.
  for node in systemd-networkd-wait-online NetworkManager-wait-online ifupdown-wait-online networking; do
    ln -sf /dev/null "$root/etc/systemd/system/$node.service"
  done

  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
  done
  mkdir "$root/dev/shm" "$root/dev/pts"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"

  touch "$work/root-is-ready"
  cd "$root"
  mkdir .outside
  pivot_root . .outside
  umount -l /.outside
  exec env -i container=acc-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=basic.target --log-target=console --show-status=no
}
if [ "${1:-}" = --become-systemd ]; then
  become_systemd "$2" "$3"
fi

# --- first half
[ $# -ge 2 ] || { echo "usage: with_systemd.sh TREE COMMAND…" >&2; exit 2; }
tree=$(realpath "$1")
shift
[ "$(id -u)" = 0 ] || skip "a system manager in namespaces needs root"
[ -x /lib/systemd/systemd ] || skip "systemd is not installed"
for tool in unshare nsenter findmnt pivot_root systemctl; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
cgroups=$(findmnt -nt cgroup2 -o TARGET | head -1)
[ -n "$cgroups" ] || skip "no cgroup v2 file system is mounted"
group=$cgroups/acc-systemd-test.$$
mkdir "$group" 2>/dev/null || skip "cannot make a control group below $cgroups"
work=$(mktemp -d)

clean_up() {
  trap - EXIT
  echo 1 >"$group/cgroup.kill" 2>/dev/null || :
  local tries=100
  while grep -q '^populated 1' "$group/cgroup.events" && [ $((tries -= 1)) -gt 0 ]; do sleep 0.05; done
  find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || :
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

(
  echo "$BASHPID" >"$group/cgroup.procs"
  exec unshare --fork --pid --mount --uts --ipc --net --cgroup --kill-child=KILL --propagation private \
    "$0" --become-systemd "$work" "$tree"
) >"$work/console" 2>&1 </dev/null &
starter=$!
disown "$starter"  # or bash would report its violent end

# In its own cgroup namespace systemd puts itself into init.scope; it is the only process there.
manager_pid() { head -1 "$group/init.scope/cgroup.procs" 2>/dev/null || :; }
manager=
for _ in $(seq 300); do
  manager=$(manager_pid)
  if [ -n "$manager" ] && [ "$manager" -gt 1 ]; then
    state=$(nsenter -t "$manager" -a systemctl is-system-running 2>/dev/null) || :
    case "$state" in running | degraded) break ;; esac
  fi
  manager=
  kill -0 "$starter" 2>/dev/null || break
  sleep 0.1
done
if [ -z "$manager" ]; then
  tail -20 "$work/console" >&2
  [ -e "$work/root-is-ready" ] || skip "namespaces or an overlay of / are not to be had here (last lines above)"
  echo "with_systemd.sh: systemd did not come up within 30 s (its last lines stand above)" >&2
  exit 1
fi

# Not part of basic.target; MASTER_ADDR 127.0.0.1 needs it.
nsenter -t "$manager" -a -- ip link set lo up 2>/dev/null || skip "no ip command to bring the loopback up"
status=0
nsenter -t "$manager" -a -- "$@" || status=$?
if [ "${SHUT_DOWN:-}" = 1 ] && [ "$status" = 0 ]; then
  for _ in $(seq 600); do kill -0 "$starter" 2>/dev/null || exit 0; sleep 0.1; done
  tail -20 "$work/console" >&2
  echo "with_systemd.sh: the system did not shut down within 60 s (its last lines stand above)" >&2
  exit 1
fi
exit "$status"
