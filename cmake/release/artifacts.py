#!/usr/bin/env python3
"""What a release consists of: its notes, its digests, and whether two of them are equal.

    artifacts.py notes CHANGELOG.md 0.2.0   prints the section of a version; fails without one
    artifacts.py sums FOLDER                writes FOLDER/SHA256SUMS, as sha256sum -c reads it
    artifacts.py compare A B                names what differs between two folders, down to the member of a package or an archive
"""
from __future__ import annotations

import hashlib
import io
import pathlib
import re
import sys
import tarfile
import zipfile

SUMS = "SHA256SUMS"


class Problem(Exception):
    pass


def notes(text: str, version: str) -> str:
    """The section `## VERSION`, which may have a date behind it. @throws Problem"""
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    for section in sections:
        heading, _, body = section.partition("\n")
        if re.fullmatch(rf"\[?{re.escape(version)}\]?(\s.*)?", heading):
            if not re.search(r"^- ", body, re.M):
                raise Problem(f"the changelog's section {version} has no entry")
            return f"## {heading}\n{body.rstrip()}\n"
    raise Problem(f"the changelog has no section \"## {version}\": rename \"Unreleased\"")


def digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sums(folder: pathlib.Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    return "".join(f"{digest(folder / name)}  {name}\n" for name in names)


def members(name: str, content: bytes) -> dict[str, str]:
    """{member: its digest and attributes} of an archive; empty of any other file."""
    found: dict[str, str] = {}
    if name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for one in archive.infolist():
                found[one.filename] = f"{hashlib.sha256(archive.read(one)).hexdigest()} {one.external_attr:o} {one.date_time}"
    elif re.search(r"\.tar(\.\w+)?$", name):
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for one in archive.getmembers():
                data = archive.extractfile(one) if one.isfile() else None
                what = hashlib.sha256(data.read()).hexdigest() if data else one.linkname
                found[one.name] = f"{what} {one.mode:o} {one.uname} {one.gname} {one.mtime}"
    elif name.endswith((".deb", ".a")) and content.startswith(b"!<arch>\n"):
        place = 8
        while place + 60 <= len(content):
            header = content[place:place + 60].decode("latin-1")
            size, inner = int(header[48:58]), header[:16].strip().rstrip("/")
            data = content[place + 60:place + 60 + size]
            inside = members(inner, data)
            found.update({f"{inner}: {key}": value for key, value in inside.items()})
            found[inner] = f"{header[16:48].split()}" + ("" if inside else " " + hashlib.sha256(data).hexdigest())
            place += 60 + size + size % 2
    return found


def differences(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """What is not equal, of each unequal archive the members; empty: byte by byte the same files."""
    names = sorted({path.name for folder in (one, other) for path in folder.iterdir() if path.is_file()})
    found = []
    for name in names:
        if missing := [folder for folder in (one, other) if not (folder / name).is_file()]:
            found.append(f"{name}: missing in {missing[0]}")
            continue
        contents = [(folder / name).read_bytes() for folder in (one, other)]
        if contents[0] == contents[1]:
            continue
        inside = [members(name, content) for content in contents]
        unequal = [key for key in sorted(inside[0].keys() | inside[1].keys()) if inside[0].get(key) != inside[1].get(key)]
        found += [f"{name}: {key}: {inside[0].get(key, 'missing')} / {inside[1].get(key, 'missing')}" for key in unequal] or [f"{name}: its bytes differ"]
    return found


def main(words: list[str]) -> int:
    try:
        match words:
            case ["notes", path, version]:
                print(notes(pathlib.Path(path).read_text(), version), end="")
            case ["sums", folder]:
                (pathlib.Path(folder) / SUMS).write_text(sums(pathlib.Path(folder)))
            case ["compare", one, other]:
                if found := differences(pathlib.Path(one), pathlib.Path(other)):
                    raise Problem("\n  ".join(["the two builds differ:", *found]))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except Problem as problem:
        print(f"artifacts.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
