#!/usr/bin/env python3
"""symbols_test.py LIBACC_SO HEADER…: the library exports the functions of the headers, no more and no fewer, under one version."""
import pathlib
import re
import subprocess
import sys

library, *headers = map(pathlib.Path, sys.argv[1:])
text = re.sub(r"/\*.*?\*/", "", "".join(header.read_text() for header in headers), flags=re.S)
declared = set(re.findall(r"ACC_API\b[^;(]*?\b(acc_\w+)\(", text))
listed = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], check=True, capture_output=True,
                        text=True).stdout
exported = {line.split()[-1] for line in listed.splitlines() if line.split()[-2] != "A"}
names = {symbol.split("@")[0] for symbol in exported}

problems = [f"declared, not exported: {name}" for name in sorted(declared - names)]
problems += [f"exported, not declared: {name}" for name in sorted(names - declared)]
problems += [f"without the version ACC_0: {s}" for s in sorted(exported) if not s.endswith("@@ACC_0")]
needed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
libraries = re.findall(r"\(NEEDED\).*\[(.*?)\]", needed)
if not any("san" in name for name in libraries):
    problems += [f"needs {name}" for name in libraries if re.match(r"libstdc|libgcc|libacc|libnccl|libcuda", name)]
print(f"{len(declared)} functions; needs {', '.join(libraries)}")
print("\n".join(problems) or "all well")
sys.exit(bool(problems) or len(declared) < 50)
