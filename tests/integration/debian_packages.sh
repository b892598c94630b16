#!/usr/bin/env bash
# debian_packages.sh BUILD FOLDER: makes the Debian packages of this build in FOLDER, for the tests that install them.
# Exit code 77 (skip) where they can't be made.
set -euo pipefail
build=$(realpath "$1")
folder=$2

if ! command -v dpkg-shlibdeps >/dev/null; then
  echo "SKIP: not a Debian with dpkg-dev" >&2
  exit 77
fi
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
cpack --config "$build/CPackConfig.cmake" -G DEB -D CPACK_DEBIAN_COMPRESSION_TYPE=zstd -B "$folder"  # a third of gzip's time
