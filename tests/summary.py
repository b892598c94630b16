"""The last lines of tests/run.sh, from ctest's JUnit file: what failed and why in a line each, then "N passed, N failed, N skipped"."""
import re, sys
import xml.etree.ElementTree as xml

WIDTH = 300


def reason(output):
    """Where Python's traceback left the test and with what; else Catch2's failed expression; else the last words."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    raised = [n for n, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception|TimeoutExpired|Exit)\b", line)]
    if raised:
        places = [re.match(r'File ".*?([^/"]+)", line (\d+), in (test\w+)', line) for line in lines[:raised[0]]]
        place = [f"{found[1]}:{found[2]} {found[3]}: " for found in places if found][-1:]
        return "".join(place) + " ".join(lines[raised[0]:raised[0] + 2])
    failed = [n for n, line in enumerate(lines) if line.endswith("FAILED:")]
    if failed:
        return " ".join(lines[failed[0]:failed[0] + 5])
    return " ".join(lines[-2:])


def main(path):
    try:
        cases = xml.parse(path).getroot().findall("testcase")
    except (OSError, xml.ParseError) as error:
        return f"ctest left no result: {error}"
    passed = [case for case in cases if case.get("status") == "run"]
    # A test whose program is missing did not run either, but that is a failure.
    skipped = [case for case in cases if case.get("status") == "disabled" or (case.find("skipped") is not None and
               case.find("skipped").get("message", "").startswith("SKIP_"))]
    failed = [case for case in cases if case not in passed and case not in skipped]
    for case in failed:
        told = [child.get("message", "") for child in case if child.tag in ("failure", "skipped")]
        why = reason(case.findtext("system-out", "")) or " ".join(told)
        print(f"failed: {case.get('name')}: {why[:WIDTH]}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
