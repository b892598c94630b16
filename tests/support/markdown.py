"""What the tests of the documents need of Markdown: fenced blocks, links, anchors. Standard library only."""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Block:
    line: int  # of its first line of text, from 1
    language: str
    text: str
    notes: list  # of the comments right before it: "not run: needs Slurm", "needs: torch"
    output: str = ""  # of the ```text block right after it

    def note(self, key):
        return next((one.removeprefix(key + ":").strip() for one in self.notes if one.startswith(key + ":")), None)


def pages():
    """The documents that a user reads, relative to the root."""
    own = [path.relative_to(ROOT) for path in sorted((ROOT / "docs").glob("*.md"))]
    return [pathlib.Path("README.md"), pathlib.Path("SECURITY.md"), pathlib.Path("examples/README.md"), pathlib.Path("examples/12_cluster/README.md"), *own]


def all_pages():
    """All documents of the repository: those, decisions, rooms."""
    found = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return [path for path in found if path.parts[0] not in {"build", "shared"} and not path.parts[0].startswith(".")]


def blocks(text):
    """Fenced blocks, in order."""
    found, notes, current, last_end = [], [], None, -1
    for number, line in enumerate(text.splitlines(), 1):
        if current is not None:
            if line.rstrip() == "```":
                if current.language == "text" and found and last_end == current.line - 2:
                    found[-1].output = current.text
                found.append(current)
                current, last_end = None, number
            else:
                current.text += line + "\n"
        elif fence := re.fullmatch(r"```(\w*)\s*", line):
            current, notes = Block(number + 1, fence[1], "", notes), []
        elif comment := re.fullmatch(r"<!-- (.*) -->", line.strip()):
            notes.append(comment[1])
        elif line.strip():
            notes = []
    return found


def without_code(text):
    """The same number of lines, without fenced blocks and code spans."""
    text = re.sub(r"^```.*?^```\s*$", lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def spans(text):
    """(line, code span) outside of fenced blocks."""
    text = re.sub(r"^```.*?^```\s*$", lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S)
    for number, line in enumerate(text.splitlines(), 1):
        for found in re.finditer(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)", line):
            yield number, found[2].strip()


def links(text):
    """(line, target) of links and images."""
    for number, line in enumerate(without_code(text).splitlines(), 1):
        for target in re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", line):
            yield number, target


def anchors(text):
    """Of the headings, as GitHub and pandoc's gfm make them."""
    fenced = re.sub(r"^```.*?^```\s*$", lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S)
    seen, found = {}, set()
    for heading in re.findall(r"^#{1,6} (.+?)\s*#*$", fenced, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
