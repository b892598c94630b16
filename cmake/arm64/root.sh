#!/usr/bin/env bash
# Makes build/arm64-root: the headers and libraries of Debian's arm64 packages that the build needs, unpacked and not installed.
# `root.sh machine` makes build/arm64-machine: a kernel and busybox, for tests/arm64/machine.py.
# Needs no root and changes nothing of this machine's packages. Does nothing if the folder holds these packages already.
# FOLDER/versions: what was unpacked, "name version" in a line.
set -euo pipefail
. "$(dirname "$0")/../setup.sh"

what=${1:-root}
case $what in
  root) packages=$acc_target_packages ;;
  machine) packages="linux-image-cloud-arm64 busybox-static" ;;
  *) acc_die "what is '$what'? root or machine" ;;
esac
root=$acc_root/build/arm64-$what
if [ -e "$root/versions" ] && [ "$(cat "$root/complete" 2>/dev/null)" = "$packages" ]; then exit 0; fi
acc_say "unpacking Debian's arm64 packages in build/arm64-$what"
rm -rf "$root"
state=$root/apt
mkdir -p "$state/lists/partial" "$state/archives/partial"
: >"$state/status" # nothing is installed: apt finds all that the packages depend on

apt_arm64() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::status="$state/status" \
    -o Dir::Cache="$state" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o APT::Install-Recommends=false "$@"
}
apt_arm64 update
# A kernel depends on what makes its initial memory, which isn't needed here.
# shellcheck disable=SC2086
if [ "$what" = machine ]; then
  kernel=$(apt_arm64 install --dry-run $packages | sed -n 's/^Inst \(linux-image-[0-9][^ ]*\) .*/\1/p' | head -n 1)
  (cd "$state/archives" && apt_arm64 download "$kernel" busybox-static)
else
  apt_arm64 install -y --download-only $packages
fi
for package in "$state"/archives/*.deb; do
  dpkg-deb --extract "$package" "$root"
  dpkg-deb --show --showformat '${Package} ${Version}\n' "$package"
done >"$root/versions"
rm -rf "$state"
echo "$packages" >"$root/complete"
