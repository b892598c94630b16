#!/usr/bin/env python3
"""house_test.py ROOT: reads every #include of the rooms and holds it against who may know whom (docs/architecture.md).

A room that needs something new gets it in the table below, in the same commit as docs/architecture.md.
"""
import pathlib
import re
import sys

ASIO = {"boost/asio", "boost/process"}
# room: (rooms it may include, libraries it may include)
ROOMS = {
    "common": (set(), {"boost/system", "boost/assert"}),
    "rendezvous": ({"common"}, {"boost/system", "boost/assert", "boost/beast", "nlohmann", "openssl"} | ASIO),
    "agent": ({"common", "rendezvous"}, {"boost/system", "boost/assert", "nlohmann"} | ASIO),
    "launcher": ({"common", "agent", "rendezvous"}, {"boost/system", "boost/assert", "yaml-cpp", "nlohmann"}),
    "runtime": ({"common", "acc"}, {"boost/system", "boost/assert", "nlohmann", "zlib.h", "nccl.h", "cuda"}),
    "examples": ({"acc"}, set()),
}
# The launcher hands a plan over; what the agent is made of is not its business.
AGENT_PUBLIC = {"agent/agent.hpp", "agent/guardian.hpp", "agent/job_plan.hpp", "agent/report_keys.hpp"}
# Of the rendezvous it only makes the secret, and looks whether there is one.
RENDEZVOUS_FOR_LAUNCHER = {"rendezvous/secret.hpp"}
# Some things are known to one file, or to one kind of file, only.
ONLY_IN = {
    "spdlog": lambda path: path == "common/log.cpp",
    "fmt": lambda path: path == "common/log.cpp",
    "nccl.h": lambda path: path.endswith(".cpp"),
    "cuda": lambda path: path.endswith(".cpp"),
}
# An example is a program of its own, as a user would write it.
EXAMPLE_HEADERS = {("examples/08_fashion_mnist_cpp", f"{name}.hpp")
                   for name in ("net", "model", "layers", "device_model", "cublas")}
SYSTEM = re.compile(r"(sys|linux|net|netinet|arpa|asm|bits)/[\w/.-]+|[\w-]+(\.h)?")
LIBRARIES = ["boost/[a-z_]+", "nlohmann", "yaml-cpp", "spdlog", "fmt", "openssl", "zlib.h", "nccl.h", "cuda", "catch2"]
LIBRARY = re.compile(rf"({'|'.join(LIBRARIES)})\b")


def complaint(path, room, quote, header):
    rooms, libraries = ROOMS[room]
    if quote == '"':
        other = header.split("/")[0]
        if other == room or other in rooms:
            if room == "launcher" and other == "agent" and header not in AGENT_PUBLIC:
                return f"the launcher may include {', '.join(sorted(AGENT_PUBLIC))} of the agent, nothing else"
            if room == "launcher" and other == "rendezvous" and header not in RENDEZVOUS_FOR_LAUNCHER:
                return f"the launcher may include {', '.join(sorted(RENDEZVOUS_FOR_LAUNCHER))} of the rendezvous, nothing else"
            return None
        if room == "examples" and (path.rpartition("/")[0], header) in EXAMPLE_HEADERS:
            return None
        if "/" not in header:
            return "includes start at the root: \"room/file.hpp\""
        return f"{room} may not include {other}"
    library = LIBRARY.match(header)
    if not library:
        if header.split("/")[0] in rooms or SYSTEM.fullmatch(header):
            return None
        return "a library that no room may include"
    name = library[1]
    if name in ONLY_IN and not ONLY_IN[name](path):
        return f"{name} does not belong in here"
    if name in libraries or name in ONLY_IN and room == "common":
        return None
    return f"{room} may not include {name}"


def check_self():
    """The rules themselves: a check that never complains proves nothing."""
    wrong = [("common/text.hpp", "common", "<", "boost/asio.hpp"), ("common/text.cpp", "common", '"', "agent/agent.hpp"),
             ("common/text.cpp", "common", "<", "spdlog/spdlog.h"), ("agent/agent.cpp", "agent", "<", "yaml-cpp/yaml.h"),
             ("agent/agent.cpp", "agent", '"', "launcher/cli.hpp"), ("launcher/cli.cpp", "launcher", '"', "agent/spawn.hpp"),
             ("launcher/cli.cpp", "launcher", "<", "boost/asio.hpp"), ("launcher/x.cpp", "launcher", '"', "rendezvous/roster.hpp"), ("runtime/a.hpp", "runtime", "<", "nccl.h"),
             ("agent/agent.cpp", "agent", '"', "job_plan.hpp"), ("examples/x/a.cpp", "examples", '"', "common/ids.hpp")]
    right = [("common/log.cpp", "common", "<", "spdlog/spdlog.h"), ("agent/agent.cpp", "agent", "<", "boost/asio/posix/x.hpp"),
             ("launcher/x.cpp", "launcher", '"', "agent/job_plan.hpp"), ("launcher/x.cpp", "launcher", '"', "rendezvous/secret.hpp"), ("common/x.cpp", "common", "<", "sys/wait.h"),
             ("common/x.cpp", "common", "<", "string_view"), ("runtime/nccl.cpp", "runtime", "<", "nccl.h")]
    return [f"own check: {one} passed" for one in wrong if complaint(*one) is None] + \
           [f"own check: {one} refused: {complaint(*one)}" for one in right if complaint(*one) is not None]


def names_that_are_options(root):
    """ctest starts a Catch test by its name: one that begins with a dash is read as an option, and nothing runs."""
    for path in sorted((root / "tests/unit").rglob("*_test.cpp")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith('TEST_CASE("-'):
                yield f"{path.relative_to(root)}:{number}: a test's name can't begin with a dash"


def main():
    root = pathlib.Path(sys.argv[1])
    complaints = check_self() + list(names_that_are_options(root))
    files = 0
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in {".hpp", ".cpp", ".h", ".cu"}:
                continue
            files += 1
            name = str(path.relative_to(root))
            text = path.read_text()
            if path.suffix in {".hpp", ".h"} and "#pragma once" not in text:
                complaints.append(f"{name}: no #pragma once")
            for number, line in enumerate(text.splitlines(), 1):
                include = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
                problem = include and complaint(name, room, include[1], include[2])
                if problem:
                    complaints.append(f"{name}:{number}: {line.strip()}: {problem}")
    print("\n".join(complaints + [f"{files} files read, {len(complaints)} complaints"]))
    return 1 if complaints or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
