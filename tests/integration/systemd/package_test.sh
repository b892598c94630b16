#!/usr/bin/env bash
# package_test.sh BUILD: the package acc under a real systemd: installed, upgraded under a running job, removed, purged.
# Exit code 77 (skip) where none can be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")

if [ "$(id -u)" != 0 ]; then
  echo "SKIP: a system manager in namespaces needs root" >&2
  exit 77
fi
if ! command -v dpkg-shlibdeps >/dev/null; then
  echo "SKIP: not a Debian with dpkg-dev" >&2
  exit 77
fi
tree=$(mktemp -d)
made=$(mktemp -d)
trap 'rm -rf "$tree" "$made"' EXIT
(cd "$made" && cpack --config "$build/CPackConfig.cmake" -G DEB -D CPACK_COMPONENTS_ALL=acc -B "$made" >"$made/log") || { cat "$made/log"; exit 1; }
mkdir -p "$tree/srv/acc"
cp "$made"/acc_*.deb "$tree/srv/acc/acc.deb"
cp "$here/package_checks.sh" "$here/agent_claims.sh" "$tree/srv/acc/"

# Not exec: the trap removes the tree.
"$here/with_systemd.sh" "$tree" /srv/acc/package_checks.sh
