#!/usr/bin/env bash
# debian_packages.sh BUILD FOLDER: makes the Debian packages of this build in FOLDER, for the tests that install them.
# Exit code 77 (skip) where they can't be made.
set -euo pipefail
umask 077  # of some administrators, and nobody is to notice
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

files=$(for package in ./*.deb; do dpkg-deb -c "$package"; done)
wrong=$(grep -Ev '^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx) root/root ' <<<"$files" || :)
[ -z "$wrong" ] || { echo "files with other modes than a package's:"; echo "$wrong"; exit 1; }
for name in 01_hello_ranks/hello.sh 06_service/job.sh; do
  grep -q "^-rwxr-xr-x .*/examples/$name\$" <<<"$files" || { echo "examples/$name can't be run"; exit 1; }
done
