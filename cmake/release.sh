#!/bin/bash
# Makes a version from the last commit: packages and wheels for amd64 and arm64, sources, bill of materials, digests.
#   cmake/release.sh VERSION [FOLDER]   into FOLDER (build/release-VERSION), which must not exist
#   cmake/release.sh --check            builds twice in different folders and compares byte by byte; takes twice as long
# Refused: a CHANGELOG.md without the section, another version in CMakeLists.txt, changes that aren't committed.
# Everything is built from `git archive`, with the commit's time as SOURCE_DATE_EPOCH, without ccache.
set -eu
cd "$(dirname "$0")/.."
. cmake/setup.sh

version_of_project() { sed -n 's/^project(acc VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt; }

check() {
  [ "$1" = "$(version_of_project)" ] || acc_die "CMakeLists.txt has version $(version_of_project), not $1: change both it and CHANGELOG.md"
  python3 cmake/release/artifacts.py notes CHANGELOG.md "$1" >/dev/null
  [ -z "$(git status --porcelain)" ] || acc_die "there are changes that aren't committed: $(git status --porcelain | head -3 | tr '\n' ' ')"
}

# build_for PRESET SOURCES RESULTS: packages and the wheel of one architecture.
build_for() {
  local preset=$1 source=$2 out=$3
  # Paths of this machine get into a program through __FILE__ and debug information: both begin at the root of the sources.
  local map="-ffile-prefix-map=$source/="
  acc_say "building for preset $preset"
  (
    cd "$source"
    export CCACHE_DISABLE=1  # what another folder compiled proves nothing
    cmake --preset "$preset" -DACC_TESTS=OFF -DCMAKE_C_FLAGS="$map" -DCMAKE_CXX_FLAGS="$map" >/dev/null
    cmake --build --preset "$preset" --parallel "${ACC_JOBS:-$(nproc)}" --target all
    (cd "build/$preset" && cpack >/dev/null && mv ./*.deb "$out/")
    ACC_NO_SETUP=1 ./cmake/wheel.sh $([ "$preset" = release ] || echo "--$preset") "$out"
  )
}

# What is linked has one version for both architectures. sbom.py refuses others, but it needs the builds for its answer.
check_versions() {
  local package there older=
  while read -r package there; do
    case " $acc_target_packages " in *" $package "*) ;; *) continue ;; esac
    [ "$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null)" = "$there" ] || older="$older $package"
  done <build/arm64-root/versions
  [ -z "$older" ] || acc_die "this machine has other versions than arm64's newest: apt-get install$older, or remove build/arm64-root"
}

# build VERSION FOLDER_OF_SOURCES FOLDER_OF_RESULTS
build() {
  local version=$1 source=$2 out=$3
  cmake/arm64/root.sh
  check_versions
  mkdir -p "$source/build" "$out"
  git archive HEAD | tar -x -C "$source"
  git archive --format=tar --prefix="acc-$version/" HEAD | gzip -9n >"$out/acc-$version.tar.gz"
  ln -s "$acc_root/build/arm64-root" "$source/build/arm64-root"
  build_for release "$source" "$out"
  build_for arm64 "$source" "$out"
  acc_say "bill of materials"
  python3 cmake/release/sbom.py --build "$source/build/release" --same-in build/arm64-root/versions --version "$version" --out "$out/acc-$version.spdx.json" "$out"/*
  python3 cmake/release/artifacts.py sums "$out"
}

[ $# -ge 1 ] && [ "$1" != --help ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
acc_install $acc_build_packages $acc_cross_packages
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$1" = --check ]; then
  version=$(version_of_project)
  [ -z "$(git status --porcelain)" ] || acc_say "what isn't committed is not a part of this"
  build "$version" "$work/one/acc" "$work/results-one"
  build "$version" "$work/another/folder/of/sources" "$work/results-other"
  python3 cmake/release/artifacts.py compare "$work/results-one" "$work/results-other"
  acc_say "two builds in different folders are equal byte by byte:"
  cat "$work/results-one/SHA256SUMS"
  exit 0
fi

version=$1
out=$(realpath -m "${2:-build/release-$version}")
check "$version"
[ ! -e "$out" ] || acc_die "$out exists"
build "$version" "$work/acc" "$work/results"
python3 cmake/release/artifacts.py notes CHANGELOG.md "$version" >"$work/results/NOTES.md"
python3 cmake/release/artifacts.py sums "$work/results"
mkdir -p "$(dirname "$out")"
mv "$work/results" "$out"
acc_say "version $version is in $out; to publish it: git tag -s v$version && git push --tags"
cat "$out/SHA256SUMS"
