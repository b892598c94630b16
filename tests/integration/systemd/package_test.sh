#!/usr/bin/env bash
# package_test.sh PACKAGES: the package acc under a real systemd: installed, upgraded under a running job, removed, purged.
# Exit code 77 (skip) where none can be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packages=$1  # as debian_packages.sh made them

if [ "$(id -u)" != 0 ]; then
  echo "SKIP: a system manager in namespaces needs root" >&2
  exit 77
fi
if ! ls "$packages"/acc_*.deb >/dev/null 2>&1; then
  echo "SKIP: no package in $packages" >&2
  exit 77
fi
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/srv/acc"
cp "$packages"/acc_*.deb "$tree/srv/acc/acc.deb"
cp "$here/package_checks.sh" "$here/agent_claims.sh" "$tree/srv/acc/"

# Not exec: the trap removes the tree.
"$here/with_systemd.sh" "$tree" /srv/acc/package_checks.sh
