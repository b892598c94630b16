#!/usr/bin/env python3
"""The bill of materials of a release (SPDX 2.3, JSON): what is linked or included into the programs, from which Debian packages, under which licences.

    sbom.py --build build/release --version 0.2.0 --out acc-0.2.0.spdx.json FILE…

Nothing in it is written by hand: headers come from the compiler's dependencies that ninja keeps, archives from the link commands and
from what g++ names, packages and versions from dpkg, licences from the packages' copyright files. A file that belongs to no
package, or a copyright file without a licence that is known here, is an error. FILEs are what is shipped; their digests are in it.
--same-in FILE, "name version" lines: what another architecture was built from; a package of another version there is an error.
SOURCE_DATE_EPOCH is its time; two runs over the same build are equal byte by byte.
"""
from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

# They declare what libc, the kernel and CUDA define: nothing of them gets into a program.
DECLARATIONS_ONLY = re.compile(r"libc6-dev|linux-libc-dev|libcrypt-dev|libtirpc-dev|libnsl-dev|nvidia-cuda-.*|cuda-.*|libnccl-dev")
CUDA_FOLDER = re.compile(r"/(usr/local|opt)/(cuda|nvidia)[^/]*/")
# Debian's short names (copyright-format 1.0) → SPDX. X11 and the like depend on the text.
LICENCES = {"BSL-1.0": "BSL-1.0", "Boost-1.0": "BSL-1.0", "Expat": "MIT", "Expat with embedded exception": "MIT", "MIT": "MIT", "Apache-2.0": "Apache-2.0", "Zlib": "Zlib",
            "BSD-2-clause": "BSD-2-Clause", "BSD-3-clause": "BSD-3-Clause"}


class Unknown(Exception):
    pass


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def headers_of(deps: str) -> set[str]:
    """Absolute paths in the output of `ninja -t deps`."""
    return {os.path.normpath(line.strip()) for line in deps.splitlines() if line.startswith("    /")}


def archives_of(ninja_file: str) -> set[str]:
    """Absolute paths of archives in the link commands of build.ninja."""
    found = re.findall(r"^\s*LINK_LIBRARIES = (.*)$", ninja_file, re.M)
    return {word for line in found for word in line.split() if word.startswith("/") and word.endswith(".a")}


def packages_of(paths: set[str], ask=lambda paths: subprocess.run(["dpkg", "-S", *paths], capture_output=True, text=True).stdout) -> dict[str, str]:
    """{path: package}; a path may have links in it. @throws Unknown  those that belong to no package."""
    real = {path: os.path.realpath(path) for path in paths}
    wanted = sorted(set(real) | set(real.values()))
    owners: dict[str, str] = {}
    for first in range(0, len(wanted), 500):
        for line in ask(wanted[first:first + 500]).splitlines():
            packages, _, path = line.rpartition(": ")
            if packages and not packages.startswith("diversion"):
                owners[path] = packages.split(",")[0].split(":")[0]
    found, lost = {}, []
    for path, target in real.items():
        package = owners.get(path) or owners.get(target)
        if package:
            found[path] = package
        elif not CUDA_FOLDER.match(target + "/"):
            lost.append(path)
    if lost:
        raise Unknown("these belong to no package: " + ", ".join(sorted(lost)[:10]))
    return found


def x11_like(text: str) -> str:
    if "distribute with modifications" in text:
        return "X11-distribute-modifications-variant"
    return "X11" if "Except as contained in this notice" in text else "MIT"


def licence_of(text: str, package: str) -> str:
    """The SPDX expression of a copyright file. @throws Unknown"""
    if re.search(r"GCC Runtime\s+Library\s+Exception", text, re.I):
        return "GPL-3.0-or-later WITH GCC-exception-3.1"
    for paragraph in re.split(r"\n\s*\n", text):
        if re.search(r"^Files:\s*\*\s*$", paragraph, re.M) and (found := re.search(r"^License:\s*(.+?)\s*$", paragraph, re.M)):
            short = found[1]
            if short in ("X11", "MIT/X11"):
                return x11_like(text)
            if known := {name.lower(): spdx for name, spdx in LICENCES.items()}.get(short.lower()):
                return known
            raise Unknown(f"{package}: its licence '{short}' has no SPDX name in sbom.py")
    raise Unknown(f"{package}: its copyright file has no licence for all files")


def component(package: str) -> dict[str, str]:
    """name, version and licence of an installed package, its source package and where that is from."""
    version, source, source_version, homepage = run("dpkg-query", "-W", "-f", "${Version}\t${source:Package}\t${source:Version}\t${Homepage}\n", package).splitlines()[0].split("\t")
    text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8", errors="replace")
    return {"package": package, "version": version, "source": source, "source_version": source_version, "homepage": homepage, "licence": licence_of(text, package)}


def identifier(name: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def document(name: str, version: str, components: list[dict[str, str]], files: list[pathlib.Path], epoch: int) -> dict:
    """The SPDX document."""
    ours = {"SPDXID": identifier(name), "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION", "primaryPackagePurpose": "APPLICATION"}
    packages, relations = [ours], [("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])]
    for one in sorted(components, key=lambda one: one["package"]):
        packages.append({"SPDXID": identifier("Package-" + one["package"]), "name": one["package"], "versionInfo": one["version"], "downloadLocation": "NOASSERTION",
                         "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": one["licence"], "copyrightText": "NOASSERTION",
                         "supplier": "Organization: Debian", "sourceInfo": f"built from Debian's source package {one['source']} {one['source_version']}",
                         **({"homepage": one["homepage"]} if one["homepage"] else {}),
                         "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                           "referenceLocator": f"pkg:deb/debian/{one['package']}@{one['version'].replace('+', '%2B').replace(':', '%3A')}"}]})
        relations.append((ours["SPDXID"], "STATIC_LINK", packages[-1]["SPDXID"]))
    shipped = []
    for path in sorted(files, key=lambda path: path.name):
        content = path.read_bytes()
        shipped.append({"SPDXID": identifier("File-" + path.name), "fileName": "./" + path.name, "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
                        "checksums": [{"algorithm": kind, "checksumValue": hashlib.new(kind.lower(), content).hexdigest()} for kind in ("SHA1", "SHA256")]})
        relations.append((ours["SPDXID"], "CONTAINS", shipped[-1]["SPDXID"]))
    made = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{name}-{version}",
            "creationInfo": {"created": datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: acc-sbom"]},
            "packages": packages, "files": shipped,
            "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other} for one, kind, other in relations]}
    of_content = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))
    made["documentNamespace"] = f"https://spdx.org/spdxdocs/{name}-{version}-{of_content}"
    return made


def components_of(build: pathlib.Path) -> list[dict[str, str]]:
    build = build.resolve()
    source = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    compiler = re.search(r"^CMAKE_CXX_COMPILER:[A-Z]+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    assert source and compiler
    headers = headers_of(run("ninja", "-C", str(build), "-t", "deps"))
    archives = archives_of((build / "build.ninja").read_text()) | {run(compiler[1], f"-print-file-name={name}").strip() for name in ("libstdc++.a", "libgcc.a", "libgcc_eh.a")}
    own = (str(build) + "/", source[1] + "/")
    foreign = {path for path in headers | archives if not path.startswith(own)}
    if not headers:
        raise Unknown(f"{build}: ninja knows no dependencies: build it first")
    return [component(package) for package in sorted(set(packages_of(foreign).values())) if not DECLARATIONS_ONLY.fullmatch(package)]


def check_same(components: list[dict[str, str]], lines: str) -> None:
    """@throws Unknown  packages of another version in lines, of which each is "name version"."""
    versions = dict(line.split(" ", 1) for line in lines.splitlines())
    other = [f"{one['package']} {one['version']} here, {versions[one['package']]} there" for one in components if versions.get(one["package"], one["version"]) != one["version"]]
    if other:
        raise Unknown("another architecture is built from other versions: " + ", ".join(other) + "; update the packages of this machine, or remove that architecture's folder")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--same-in", type=pathlib.Path)
    parser.add_argument("files", type=pathlib.Path, nargs="*")
    options = parser.parse_args()
    try:
        components = components_of(options.build)
        if options.same_in:
            check_same(components, options.same_in.read_text())
    except Unknown as problem:
        print(f"sbom.py: {problem}", file=sys.stderr)
        return 1
    made = document("acc", options.version, components, options.files, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    options.out.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    for one in components:
        print(f"  {one['package']:24} {one['version']:28} {one['licence']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
