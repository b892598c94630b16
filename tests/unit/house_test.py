#!/usr/bin/env python3
"""house_test.py ROOT: checks every #include of the rooms against the permitted dependencies (docs/architecture.md),
comments and identifiers against the retired words, and the sizes of classes and functions (house_sizes.py).

A room that needs a new dependency gets it in the table below and in that of docs/architecture.md, which is compared with it.
"""
import ast
import fnmatch
import itertools
import pathlib
import re
import sys

import house_sizes

ASIO = {"boost/asio", "boost/process"}
# room: (rooms it may include, libraries it may include)
ROOMS = {
    "common": (set(), {"boost/system", "boost/assert"}),
    "rendezvous": ({"common"}, {"boost/system", "boost/assert", "boost/beast", "nlohmann", "openssl"} | ASIO),
    "agent": ({"common", "rendezvous"}, {"boost/system", "boost/assert", "boost/crc", "nlohmann"} | ASIO),
    # The service above the agents: it starts acc-launch and talks to it, as a user would, and takes the agent's small helpers.
    "agent/daemon": ({"common", "agent", "rendezvous"}, {"boost/system", "boost/assert", "boost/beast", "nlohmann"} | ASIO),
    "launcher": ({"common", "agent", "rendezvous"}, {"boost/system", "boost/assert", "yaml-cpp", "nlohmann"}),
    # acc-ctl: a client of the daemon and of the agents' control sockets.
    "launcher/ctl": ({"common", "agent", "launcher"}, {"boost/system", "boost/beast", "nlohmann", "ncurses.h", "term.h"} | ASIO),
    # acc-config: makes the secret, too, by the launcher's function.
    "launcher/configure": ({"common", "launcher"}, {"nlohmann"}),
    "launcher/check": ({"common", "agent", "launcher"}, {"nlohmann"}),
    "launcher/env": ({"common", "agent", "launcher", "launcher/check"}, {"nlohmann"}),
    "runtime": ({"common", "acc"}, {"boost/system", "boost/assert", "nlohmann", "zlib.h", "nccl.h", "cuda"}),
    "examples": ({"acc"}, set()),
}
# Folders of the runtime, lowest first: which others each may include. What stands in runtime/ itself all may include, and that
# includes none of them.
RUNTIME_FOLDERS = {
    "net": set(),
    "group": {"net"},
    "shm": set(),
    "bootstrap": {"net", "shm"},
    "tcp": {"net", "shm", "bootstrap"},
    "nccl": {"net", "group"},
    "world": {"net", "group", "shm", "bootstrap", "tcp", "nccl"},
    "device": {"nccl"},
    "data": {"group"},
    "checkpoint": set(),
    "training": {"device", "checkpoint"},
    "capi": set(),
    "weights": {"checkpoint"},
    "selftest": {"net", "bootstrap", "tcp"},
}
# The launcher hands a plan over; what the agent is made of is not its business.
AGENT_PUBLIC = {"agent/agent.hpp", "agent/fanout/cluster_launch.hpp", "agent/fanout/event_mark.hpp", "agent/fanout/launch_record.hpp", "agent/fanout/orders.hpp", "agent/guardian.hpp", "agent/life_line.hpp", "agent/job_plan.hpp", "agent/event_keys.hpp", "agent/health_prober.hpp", "agent/gpu_sampler.hpp", "agent/memory_limit.hpp", "agent/metrics_text.hpp", "agent/report_keys.hpp", "agent/shell_interrupt.hpp", "agent/small_file.hpp", "agent/evidence/collector.hpp"}
# Of the rendezvous the launcher only makes the secret, and looks whether there is one.
RENDEZVOUS_FOR_LAUNCHER = {"rendezvous/secret.hpp"}
# Some things are known to one file, or to one kind of file, only.
ONLY_IN = {
    "spdlog": lambda path: path == "common/log.cpp",
    "fmt": lambda path: path == "common/log.cpp",
    "nccl.h": lambda path: path.endswith(".cpp"),
    "cuda": lambda path: path.endswith(".cpp"),
    "ncurses.h": lambda path: path == "launcher/ctl/top/screen.cpp",
    "term.h": lambda path: path == "launcher/ctl/top/screen.cpp",
}
# An example is a program of its own, as a user would write it.
EXAMPLE_HEADERS = {("examples/08_fashion_mnist_cpp", f"{name}.hpp")
                   for name in ("net", "model", "layers", "device_model", "cublas")} | {("examples/09_early_stop_cpp", "net.hpp")}
# The floors of a room, the lowest first: a file includes only files of its own floor and of lower ones, and nowhere do
# includes go in a circle. A name stands for its .hpp and .cpp; a new file gets a floor here, in the same commit.
FLOORS = {
    "agent": {
        "plans and rules": "job_plan group_state transitions coordinated supervisor translate lease_terms "
                           "pmi_session report_keys event_keys metrics_text status_text health_findings worker_calls control_protocol output/losses fanout/orders fanout/event_mark fanout/fan_out fanout/contact_watch fanout/trouble_text fanout/launch_course fanout/slot_wait job_name watch/*",
        "system": "small_file process_stat error_file containment memory_limit cpu_limit left_overs signal_targets signal_sender rank_programs orphan_reaper orphan_sweep spawn_child spawn terminal "
                  "terminal_interrupts service_notify service_watchdog output/* health_probes health_nvml health_prober gpu_sampler descriptor_limit accept_loop asio_impl watch/learned_times watch/page_holders watch/hang_cause watch/suspects evidence/*",
        "guardian": "guardian_board job_folder_notes report_file lease_timer lease_watch guardian_watch interrupt_watch shell_interrupt guardian",
        "workers": "worker_connection worker_server control_server local_store metrics_server pmi_server environment preload/* worker_start worker_group lent_terminal heartbeat_board",
        "job": "rendezvous_options coordinated_job report last_lines error_lines report_json oom_watch lost_ranks job_recorder failed_attempts job_events job_metrics event_log health_check status_line gpu_watch user_messages worker_services round_starter watch/stack_collection watch/page_evidence watch/worker_usage watch/job_watch node_stacks stalled_nodes "
               "round_terms supervisor_timers delivered_signals job_signals job_status node_health job_telemetry job_course job_ending control_requests coordinator_link",
        "loop": "life_line life_line_watch parent_watch agent_loop agent",
        "several hosts": "fanout/*",
    },
    "agent/output": {
        "rules": "losses loss_counter output_options console_facts routes terminal_view drop_policy line_splitter tail_buffer",
        "files": "event_file_line timed_answers file_system_check log_file run_folder pseudo_terminal",
        "queues": "output_queue batch_queue console_queue journal_queue log_file_queue event_file_queue destinations",
        "streams": "worker_stream pump",
        "hub": "output_hub",
    },
    "agent/fanout": {
        "rules": "launch_plan orders event_mark fan_out launch_report contact_watch launch_course trouble_text slot_wait",
        "one host": "host_stream transport host_line",
        "all hosts": "launch_record launch_status_line cluster_run cluster_launch",
    },
    "agent/daemon": {
        "interface": "caller_link log_place jobs",
        "rules": "json_text job_machine slot_table prune_rules guardian_words job_record plan_program event_ring admission_rules",
        "system": "crash_point startup_pages process_identity same_mount user_file folder_tree state_mark job_folder job_group login_user guardian_process",
        "service": "service_settings on_pool on_own_thread accounts descriptor_waits job_files state_owner kept_job event_log job_processes trial_turns trial_processes launcher_trials job_pruner job_keeper job_file_loader admission node_drain job_service",
        "http": "http_message http_parser http_reply_parser http_quota quota_owners signal_loop http_stream http_connection http_socket_file http_server sse",
        "api": "other_nodes token_issuer api_json api_body api_file_growth api_call api_rank_folders api_raw_log api_log_stream api_event_stream api_metrics api_routes",
        "peers": "peer_rules own_address peer_identity peer_check request_shares host_lookup cluster_secret peer_stream reserved_ports peer_dial peer_door kept_peers listing_turns peer_exchange peer_greeting peer_api peer_proxy "
                 "access_token loopback_rules page_files status_page loopback_door",
        "daemon": "settings connection_bounds daemon start_jobs acc_agent_main",
    },
    "launcher": {
        "table of settings": "value setting_parsers key_row key_table config_keys deviations",
        "input": "input_file habits command_words flag_table spellings cli document document_* yaml_scalar config",
        "host": "host_* core_binding elf_libraries program",
        "job": "job_spec node_list host_list hosts_inputs shell_words hosts_flags host_transport host_workers hosts_plan scheduler scheduler_rules mode policies merge_rules merge coordinator_plan main_port machines_plan "
               "commands output_paths script_check",
        "plan": "plan plan_json hosts_json",
        "programs": "help user_messages secret_file private_file completions docs_tables man_page launcher acc_main acc_*_main",
    },
    "launcher/configure": {
        "words": "verbs command pages messages python_numbers keys line_edit menu",
        "questions": "question questions questions_* questionnaire",
        "files": "config_map config_text line_changes fsdp2 refusals unexpanded other_launchers torchrun_settings interpreter mpirun_hosts mpirun_line deepspeed_line known_line foreign_line save host_view",
        "asking": "asker plain_asker script_askers raw_terminal terminal_asker interview",
        "verbs": "ask file_verbs convert",
        "programs": "acc_config_main",
    },
    "launcher/ctl": {
        "words": "verbs command pages text_table text_width",
        "formats": "sse_reader http_response job_list bridge_command bridge_requests bridge_answers bridge_machine",
        "connections": "wire nonblocking_exchange event_follower places launches",
        "verbs": "outcome invocation follow submit output show steer",
        "top": "top/*",
        "programs": "bridge ctl acc_ctl_main",
    },
    "launcher/ctl/top": {
        "cells": "cells frame log_text",
        "figures": "figures columns table",
        "model": "state model_keys model",
        "view": "view_panels view",
        "connections": "source fetcher",
        "terminal": "screen",
        "program": "top",
    },
    "rendezvous": {
        "messages": "messages message_fields clock_skew wire codec peer_text frame_splitter peer planted timings serve_seed round_record private_file secret",
        "rules": "departures given_up_assignments failures majority vote_counter standby_choice dial_sequence heartbeat_log worker_lease authority inquiries node_table node_order place_table join_rules membership membership_* "
                 "coordinator_client coordinator_client_* kv_store kv_replay restored_writes answered_requests store_questions leadership etcd_json etcd_records admission",
        "connections": "deadline_timer tls lookup own_address port_holder socket_users channel channel_read link listener own_listener dialer last_leader_file",
        "etcd": "etcd_access etcd_tls etcd_credentials etcd_http etcd_base64 etcd_refusal etcd_client etcd_leadership etcd_candidate",
        "programs": "coordinator job_server successor_notice rival_watch seed_guard rendezvous_client rendezvous_client_* acc_rendezvous_main",
    },
}
# Words that were replaced, each with the term to use (docs/architecture.md, glossary). They are refused in comments and
# identifiers of RETIRED_ROOMS; string literals are not checked.
RETIRED = {
    r"Roster|roster_": "Membership", r"Party|party_": "RendezvousClient", r"[Bb]allot": "VoteCounter, votes", r"OfficeNote": "LastLeaderFile",
    r"KvShare": "KvReplay", r"\bSeat\b|\bseat_": "CoordinatedJob", r"[Oo]ffice(?!Note)": "is coordinator, leads", r"[Ff]arewell": "close", r"[Tt]enure": "LeadershipTerm", r"\bHosting\b": "ServeSeed", r"\bbeat_interval": "heartbeat_interval",
    r"\b[Ss]omebody\b|\b[Ww]hoever\b|\b[Hh]e\b|\b[Hh]im(self)?\b|\b[Hh]is\b": "the process, node, agent or peer that is meant; it",
    r"[Kk]nock": "connection, half-open connection", r"\bh[au]ngs? up\b": "close the connection", r"\bfor words\b": "for messages",
}
RETIRED_ROOMS = ("agent", "common", "launcher", "rendezvous", "runtime")
# Pages of docs/decisions speak of what was.
RETIRED_PAGES = (*(room + "/**/*.md" for room in RETIRED_ROOMS), "docs/*.md", "examples/*.md", "tests/*.md", "README.md", "CONTRIBUTING.md", "SECURITY.md")
SYSTEM = re.compile(r"(sys|linux|net|netinet|arpa|asm|bits)/[\w/.-]+|[\w-]+(\.h)?")
LIBRARIES = ["boost/[a-z_]+", "nlohmann", "yaml-cpp", "spdlog", "fmt", "openssl", "zlib.h", "nccl.h", "cuda", "catch2", "ncurses.h", "term.h"]
LIBRARY = re.compile(rf"({'|'.join(LIBRARIES)})\b")


def room_of(path):
    """A room may stand in another's folder, which doesn't make it a part of that one."""
    return max((room for room in ROOMS if path.startswith(room + "/")), key=len, default=path.split("/")[0])


def runtime_folder(path):
    """Empty: runtime/ itself, or the installed headers."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[1] != "include" else ""


def runtime_complaint(path, header):
    folder, other = runtime_folder(path), runtime_folder(header)
    if other == folder or not other:
        return None
    if other not in RUNTIME_FOLDERS:
        return f"runtime/{other} isn't in the table of the runtime's folders"
    if not folder or other not in RUNTIME_FOLDERS.get(folder, set()):
        return f"runtime/{folder} may not include runtime/{other}"
    return None


def complaint(path, room, quote, header):
    rooms, libraries = ROOMS[room]
    if room == "runtime" and quote == '"' and header.startswith("runtime/"):
        return runtime_complaint(path, header)
    if quote == '"':
        other = room_of(header)
        if other == room or other in rooms:
            if room.startswith("launcher") and other == "agent" and header not in AGENT_PUBLIC:
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
             ("launcher/cli.cpp", "launcher", "<", "boost/asio.hpp"), ("launcher/x.cpp", "launcher", '"', "rendezvous/membership.hpp"),
             ("launcher/x.cpp", "launcher", '"', "launcher/check/report.hpp"), ("launcher/check/x.cpp", "launcher/check", '"', "rendezvous/secret.hpp"),
             ("launcher/check/x.cpp", "launcher/check", '"', "agent/spawn.hpp"), ("runtime/a.hpp", "runtime", "<", "nccl.h"),
             ("runtime/net/a.cpp", "runtime", '"', "runtime/group/group.hpp"), ("runtime/backend.hpp", "runtime", '"', "runtime/shm/peers.hpp"),
             ("runtime/shm/a.cpp", "runtime", '"', "runtime/tcp/mesh.hpp"), ("runtime/new/a.cpp", "runtime", '"', "runtime/net/store.hpp"),
             ("agent/agent.cpp", "agent", '"', "job_plan.hpp"), ("examples/x/a.cpp", "examples", '"', "common/ids.hpp")]
    right = [("common/log.cpp", "common", "<", "spdlog/spdlog.h"), ("agent/agent.cpp", "agent", "<", "boost/asio/posix/x.hpp"),
             ("launcher/x.cpp", "launcher", '"', "agent/job_plan.hpp"), ("launcher/x.cpp", "launcher", '"', "rendezvous/secret.hpp"), ("common/x.cpp", "common", "<", "sys/wait.h"),
             ("launcher/check/x.cpp", "launcher/check", '"', "launcher/program.hpp"),
             ("common/x.cpp", "common", "<", "string_view"), ("runtime/nccl.cpp", "runtime", "<", "nccl.h"),
             ("runtime/world/form.cpp", "runtime", '"', "runtime/tcp/mesh.hpp"), ("runtime/net/a.cpp", "runtime", '"', "runtime/backend.hpp"),
             ("runtime/net/a.cpp", "runtime", '"', "runtime/net/store.hpp")]
    below = [set(list(RUNTIME_FOLDERS)[:i]) for i in range(len(RUNTIME_FOLDERS))]
    cycles = [f"own check: runtime/{folder} includes a folder above it"
              for folder, lower in zip(RUNTIME_FOLDERS, below) if not RUNTIME_FOLDERS[folder] <= lower]
    return cycles + [f"own check: {one} passed" for one in wrong if complaint(*one) is None] + \
           [f"own check: {one} refused: {complaint(*one)}" for one in right if complaint(*one) is not None]


def names_that_ctest_mistakes(root):
    """ctest starts a Catch test by its name: a dash in front makes it an option, and CMake cuts it at a semicolon."""
    for path in sorted((root / "tests/unit").rglob("*_test.cpp")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith('TEST_CASE("-'):
                yield f"{path.relative_to(root)}:{number}: a test's name can't begin with a dash"
            if re.match(r'(TEST_CASE|SCENARIO)\("[^"]*;', line):
                yield f"{path.relative_to(root)}:{number}: a test's name can't have a semicolon"


def floor_of(name, floors):
    """A name beats a pattern: (number, floor's name), None if the file has no floor."""
    for match in (str.__eq__, fnmatch.fnmatchcase):
        for number, (floor, names) in enumerate(floors.items()):
            if any(match(name, one) for one in names.split()):
                return number, floor
    return None


def includes_within(root, folder):
    """{name: names that its .hpp or .cpp includes}, names relative to the folder. A room within it has floors of its own."""
    includes = {}
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in {".hpp", ".cpp"} or room_of(str(path.relative_to(root))) != room_of(f"{folder}/x"):
            continue
        name = str(path.with_suffix("").relative_to(root / folder))
        found = re.findall(rf'^\s*#\s*include "{folder}/([^"]+)\.hpp"', path.read_text(), re.M)
        includes.setdefault(name, set()).update(other for other in found if other != name)
    return includes


def circle_in(includes):
    """One circle as a list of names that ends where it begins, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name):] + [name]
        if name in done:
            return None
        path.append(name)
        for other in sorted(includes.get(name, ())):
            if circle := visit(other):
                return circle
        done.add(path.pop())
        return None

    return next(filter(None, map(visit, sorted(includes))), None)


def wrong_floors(folder, floors, includes):
    for name, others in includes.items():
        mine = floor_of(name, floors)
        if mine is None:
            yield f"{folder}/{name}: on which floor? (FLOORS in house_test.py)"
            continue
        for other in sorted(others):
            theirs = floor_of(other, floors)
            if theirs and theirs[0] > mine[0]:
                yield f"{folder}/{name} ({mine[1]}) includes {other}, which stands above it ({theirs[1]})"
    yield from circles_between_files(folder, includes)


def circles_between_files(folder, includes):
    if circle := circle_in(includes):
        yield f"{folder}: includes in a circle: {' → '.join(circle)}"


def check_runtime_files(root):
    """Within a folder of the runtime, too: a header and its source are one, so that a circle through a .cpp counts."""
    own = [({"a": {"b"}, "b": {"a"}}, 1), ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, 1), ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, 0)]
    for includes, expected in own:
        if len(list(circles_between_files("own check", includes))) != expected:
            yield f"own check of circles between files: {includes}"
    if includes_within(root, "runtime/group").get("group", set()) < {"monitor", "call_queue"}:
        yield "own check: the includes of runtime/group/group aren't found"
    for folder in RUNTIME_FOLDERS:
        yield from circles_between_files(f"runtime/{folder}", includes_within(root, f"runtime/{folder}"))
    in_runtime = {name: {other for other in others if "/" not in other} for name, others in includes_within(root, "runtime").items() if "/" not in name}
    yield from circles_between_files("runtime", in_runtime)


def check_floors(root):
    floors = {"low": "a b_*", "high": "c b_top"}
    own = [({"a": {"c"}, "c": set()}, 1), ({"b_top": {"a"}, "a": set()}, 0), ({"b_x": {"b_top"}, "b_top": set()}, 1),
           ({"a": {"b_x"}, "b_x": {"a"}}, 1), ({"d": set()}, 1)]
    for includes, expected in own:
        if len(list(wrong_floors("own check", floors, includes))) != expected:
            yield f"own check of the floors: {includes}"
    for folder, table in FLOORS.items():
        yield from wrong_floors(folder, table, includes_within(root, folder))
    for folder in set(ROOMS) - set(FLOORS) - {"runtime", "examples"}:
        yield from wrong_floors(folder, {"all": "*"}, includes_within(root, folder))


# How docs/architecture.md names what a room may include. Boost.Assert counts as a part of Boost.System, which includes it; where
# spdlog belongs is in ONLY_IN.
PAGE_WORDS = {"Boost.System": {"boost/system"}, "Boost.CRC": {"boost/crc"}, "Asio": ASIO, "Beast": {"boost/beast"}, "JSON": {"nlohmann"}, "OpenSSL": {"openssl"},
              "YAML": {"yaml-cpp"}, "zlib": {"zlib.h"}, "NCCL": {"nccl.h"}, "CUDA": {"cuda"}, "ncurses": {"ncurses.h", "term.h"}, "spdlog": set(),
              "installed headers": {"acc"}, "the agent's public headers": {"agent"}, "`rendezvous/secret.hpp`": {"rendezvous"}, **{room: {room} for room in ROOMS}}


def differences_of_page(page, rooms):
    """Between the table of docs/architecture.md and ROOMS."""
    rows = [row.strip("| ").split(" | ") for row in page.split("| room | may include | never |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]]
    for name in sorted(set(rooms) ^ {row[0] for row in rows}):
        yield f"the table of rooms {'has no row for' if name in rooms else 'has a row for the unknown'} {name}"
    for name, may, never in rows:
        if name not in rooms:
            continue
        # In front of a colon stands where alone that may be included.
        words = [word for part in may.split("; ") for word in part.rpartition(": ")[2].split(", ")]
        yield from (f"{name}: \"{word}\" isn't in PAGE_WORDS of house_test.py" for word in words if word not in PAGE_WORDS)
        told = set().union(*(PAGE_WORDS.get(word, set()) for word in words))
        held = (rooms[name][0] | rooms[name][1]) - {"boost/assert"}
        if told != held:
            yield f"{name}: the page and ROOMS of house_test.py differ in {', '.join(sorted(told ^ held))}"
        for word in re.split("[,;:] ", never):
            if PAGE_WORDS.get(word, set()) & held:
                yield f"{name}: the page says that it never includes {word}"


def check_page_of_rooms(root):
    head = "| room | may include | never |\n|---|---|---|\n"
    own = [("| common | Boost.System; `log.cpp` alone: spdlog | Asio, any room |", 0), ("| common | Boost.System, JSON | Asio |", 1), ("| common | Asio | YAML |", 1),
           ("| common | Boost.System, curl | Asio |", 1), ("| common | Boost.System | threads, Boost.System |", 1), ("| comma | Boost.System | YAML |", 2),
           ("| common | Boost.System | YAML |\n| agent | common | YAML |", 1)]
    for rows, expected in own:
        if len(list(differences_of_page(f"{head}{rows}\n\n", {"common": (set(), {"boost/system", "boost/assert"})}))) != expected:
            yield f"own check of the page of rooms: {rows!r}"
    for difference in differences_of_page((root / "docs/architecture.md").read_text(), ROOMS):
        yield f"docs/architecture.md: {difference}"


LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|\'(?:[^\'\\\n]|\\.)\'|"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)


def retired_words(text):
    """(line number, word, term to use): of comments and identifiers, not of string literals."""
    without_literals = LITERAL.sub(lambda found: found[0] if found[0][0] == "/" else "\n" * found[0].count("\n"), text)
    for number, line in enumerate(without_literals.splitlines(), 1):
        for pattern, term in RETIRED.items():
            if word := re.search(pattern, line):
                yield number, word[0], term


def check_retired_words(root):
    own = [('int roster_size;', 1), ("// whoever comes first", 1), ("struct Party {};  // he", 2), ("x();  /* somebody\n else */", 1),
           ('say("somebody");', 0), ("// the other, the party, a seat", 0), ('say("a // b"); // him', 1), ('R"(he\nhe)"; // himself', 1)]
    for text, expected in own:
        if len(list(retired_words(text))) != expected:
            yield f"own check of retired words: {text!r}"
    for room in RETIRED_ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in {".hpp", ".cpp", ".h", ".cu"}:
                continue
            for number, word, term in retired_words(path.read_text()):
                yield f"{path.relative_to(root)}:{number}: \"{word}\" is retired: {term}"
    for path in sorted(page for folder in RETIRED_PAGES for page in root.glob(folder)):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, term in RETIRED.items():
                if word := re.search(pattern, line):
                    yield f"{path.relative_to(root)}:{number}: \"{word[0]}\" is retired: {term}"


# Rooms whose page names each of their files.
PAGES = ("agent", "agent/daemon", "agent/fanout", "agent/output", "common", "launcher", "launcher/check", "launcher/configure", "launcher/ctl", "rendezvous", "runtime")


def check_pages(root):
    for room in PAGES:
        page = (root / room / "README.md").read_text()
        names = {path.stem for path in (root / room).iterdir() if path.suffix in {".hpp", ".cpp"}}
        for name in sorted(names):
            if not re.search(rf"\b{name}\b", page):
                yield f"{room}/README.md says nothing of {name}"


def check_headers_of_accelerator(root):
    """docs/runtime.md said that accelerator.hpp includes headers that it doesn't: the exceptions stand in its row."""
    include = root / "runtime/include"
    found, left = set(), ["acc/accelerator.hpp"]
    while left:
        for name in re.findall(r"#\s*include\s*<(acc/[^>]+)>", (include / left.pop()).read_text()):
            if name not in found:
                found.add(name)
                left.append(name)
    rows = (root / "docs/runtime.md").read_text().split("### Headers", 1)[1].split("\n\n", 1)[0].splitlines()
    first = next(row for row in rows if "`acc/accelerator.hpp`" in row)
    excepted = set(re.findall(r"`(acc/\w+\.hpp)`", first.split("|")[3]))
    for row in rows[rows.index(first) + 1:]:
        for name in re.findall(r"`(acc/\w+\.hpp)`", row.split("|")[2]):
            parts = {f"acc/{one}.hpp" for one in re.findall(r"`(\w+)\.hpp`", row.split("|")[3])} or {name}
            if (name in found or parts <= found) == (name in excepted):
                yield f"docs/runtime.md: accelerator.hpp {'includes' if name in excepted else 'does not include'} {name}"


def check_operations(root):
    """The agent prints the operations of the runtime by their numbers, and may not include it: both list the same words."""
    def words_of(file, begin, end):
        return re.findall(r'"(\w+)"', (root / file).read_text().split(begin, 1)[1].split(end, 1)[0])

    runtime = words_of("runtime/group/describe.cpp", "EnumNames<Operation", ";")
    common = words_of("common/heartbeat_page.cpp", "kOperations{", ";")
    if runtime != common or len(runtime) < 10:
        yield f"operations of runtime/group/describe.cpp {runtime} and of common/heartbeat_page.cpp {common} differ"


def registered_cases(text):
    """{name of a test: its classes}; {"*"}: all of the file."""
    calls = [(call, case) for cases, block in re.findall(r"foreach\(case ([^)]*)\)(.*?)endforeach\(\)", text, re.S)
             for call in re.findall(r"acc_integration_test\(([^)]*)\)", block) for case in cases.split()]
    calls += [(call, "") for call in re.findall(r"acc_integration_test\(([^)]*)\)", re.sub(r"foreach\(.*?endforeach\(\)", "", text, flags=re.S))]
    found = {}
    for call, case in calls:
        name, *words = call.replace("${case}", case).split()
        classes = itertools.takewhile(lambda word: word not in ("WHOLE_HOST", "BUSY", "TIMEOUT"), words[1:]) if words[:1] == ["CASES"] else "*"
        found.setdefault(name, set()).update(classes)
    return found


def check_registered_cases(root):
    """Where ctest runs an integration test class by class, one that no line names never runs."""
    folder = root / "tests/integration"
    text = "\n".join(re.sub(r"(?m)#.*", "", path.read_text()) for path in [folder / "CMakeLists.txt", *folder.glob("*.cmake")])
    found = registered_cases(text)
    for path in sorted(folder.glob("test_*.py")):
        cases = found.get(path.stem.removeprefix("test_"), set())
        for kind in ast.parse(path.read_text()).body:
            has_tests = isinstance(kind, ast.ClassDef) and any(isinstance(one, ast.FunctionDef) and one.name.startswith("test") for one in kind.body)
            if has_tests and not cases & {"*", kind.name}:
                yield f"{path.relative_to(root)}:{kind.lineno}: ctest runs no test of class {kind.name}: name it in tests/integration/CMakeLists.txt"


# Clang 14, which builds the fuzz targets and is clang-tidy's, has no ranges::subrange with Debian's libstdc++.
# Seen: `while (!co_await child.ended(60s)) continue;` ended the daemon with SIGILL.
AWAITED_LOOP = re.compile(r"\bwhile \([^;{}]*\bco_await\b[^;{}]*\) (continue;|\{)|\bfor \([^;]*;[^;]*\bco_await\b[^;]*;")
SUBRANGES = re.compile(r"ranges::(unique|remove|remove_if|partition|stable_partition|rotate|search|search_n|find_end|equal_range|subrange)\b|\bviews::")


def main():
    root = pathlib.Path(sys.argv[1])
    complaints = check_self() + list(names_that_ctest_mistakes(root)) + list(check_floors(root)) + list(check_runtime_files(root)) + list(check_page_of_rooms(root)) + list(check_retired_words(root)) + list(check_pages(root)) + list(check_headers_of_accelerator(root)) + list(check_operations(root)) + list(check_registered_cases(root)) + list(house_sizes.check_sizes(root))
    files = 0
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix not in {".hpp", ".cpp", ".h", ".cu"} or room_of(name) != room:
                continue
            files += 1
            text = path.read_text()
            if path.suffix in {".hpp", ".h"} and "#pragma once" not in text:
                complaints.append(f"{name}: no #pragma once")
            for number, line in enumerate(text.splitlines(), 1):
                if AWAITED_LOOP.search(line):
                    complaints.append(f"{name}:{number}: GCC 12 makes an illegal instruction of an awaited condition: await it in the loop")
                if subrange := SUBRANGES.search(line):
                    complaints.append(f"{name}:{number}: {subrange[0]}: clang 14 can't compile it: std::{subrange[1] or 'a loop'}")
                include = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
                problem = include and complaint(name, room, include[1], include[2])
                if problem:
                    complaints.append(f"{name}:{number}: {line.strip()}: {problem}")
    print("\n".join(complaints + [f"{files} files read, {len(complaints)} complaints"]))
    return 1 if complaints or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
