"""Sizes of classes and functions in C++ sources, read by a light parser; house_test.py runs it.

A class is its definition and the definitions of its members, wherever they stand, each with the comment right above it. What its
files hold besides (free functions, other classes) isn't counted. The body of a function is one thing: its lambdas and local classes
belong to it.
"""
import collections
import re

MAX_CLASS_LINES = 600
MAX_DATA_MEMBERS = 30
MAX_FUNCTION_LINES = 60
ROOMS = ("common", "rendezvous", "agent", "launcher", "runtime")

Limits = collections.namedtuple("Limits", "page lines members", defaults=(MAX_CLASS_LINES, MAX_DATA_MEMBERS))
# Larger classes: the page of docs/decisions that argues why each stays one, and what it may grow to.
ARGUED = {
    "acc::rendezvous::Membership": Limits("0037-membership-stays-one-machine.md", lines=1550, members=35),
    "acc::rendezvous::CoordinatorClient": Limits("0037-membership-stays-one-machine.md", lines=850),
    "acc::runtime::ProcessGroup": Limits("0049-sizes.md", lines=800),
    "acc::runtime::cuda::Api": Limits("0049-sizes.md", members=40),
}

LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|\'(?:[^\'\\\n]|\\.)+\'|"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.S)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|[0-9][\w.]*|\n|\S")
LITERAL_WORD = "__literal"
CLASS_KEYS = {"class", "struct", "union"}
# A declaration in a class that has one of these holds no data of an object.
NO_DATA = {"using", "typedef", "friend", "static", "static_assert", "enum", "operator"}

Size = collections.namedtuple("Size", "name lines where")
ClassSize = collections.namedtuple("ClassSize", "name lines members where")


class Sizes:
    """What was read: functions, and by full name the lines and data members of classes."""

    def __init__(self):
        self.functions = []  # Size
        self.classes = {}  # full name: [lines, data members, where]
        self.members = []  # (names that its class may have, lines): functions defined outside of their class
        self.broken = []  # files whose brackets don't match

    def read(self, path, text):
        Reader(self, path, text).read()

    def class_sizes(self):
        sizes = {name: list(size) for name, size in self.classes.items()}
        for names, lines in self.members:
            if owner := next((name for name in names if name in sizes), None):
                sizes[owner][0] += lines
        return [ClassSize(name, *size) for name, size in sizes.items()]


class Reader:
    """Reads one file: namespaces, classes and functions, statement by statement."""

    def __init__(self, sizes, path, text):
        self.sizes, self.path = sizes, path
        self.lines = text.splitlines()
        self.tokens = tokens_of(text)
        self.closing = closing_brackets(self.tokens)

    def read(self):
        if self.closing is None:
            self.sizes.broken.append(self.path)
        else:
            self.read_scope(0, len(self.tokens), [], None)

    def read_scope(self, i, end, scope, owner):
        """`owner`: the class whose body this is, None in a namespace."""
        start, words = i, []
        while i < end:
            word = self.tokens[i][0]
            if word == ";":
                if owner:
                    self.sizes.classes[owner][1] += data_members(words)
                start, words = i + 1, []
            elif word == ":" and words and words[-1] in {"public", "private", "protected"} and len(words) == 1:
                start, words = i + 1, []
            elif word == "{":
                is_over = self.read_braces(start, i, words, scope)
                i = self.closing[i]
                if is_over:
                    start, words = i + 1, []
                else:
                    words.append("{}")
            elif word in "([":
                words += [one for one, _ in self.tokens[i:self.closing[i] + 1]]
                i = self.closing[i]
            else:
                words.append(word)
            i += 1

    def read_braces(self, start, i, words, scope):
        """True: the statement ends with these braces."""
        plain = plainly(words)
        inside = (i + 1, self.closing[i])
        if "namespace" in plain[:2] or plain[:1] == ["extern"] and len(plain) == 2:
            names = [one for one in plain if one not in {"inline", "namespace", "::", "extern", LITERAL_WORD}]
            hidden = [self.path] if plain == ["namespace"] else []
            self.read_scope(*inside, scope + names + hidden, None)
            return True
        if name := class_name(plain):
            full = "::".join(scope + name)
            size = self.sizes.classes.setdefault(full, [0, 0, self.place(start)])
            size[0] += self.lines_of(start, self.closing[i])
            self.read_scope(*inside, scope + name, full)
            return False  # an object of it may be declared at once
        if not is_body(plain, words):
            return False
        name = function_name(plain)
        lines = self.tokens[self.closing[i]][1] - self.tokens[start][1] + 1
        self.sizes.functions.append(Size("::".join(scope + name), lines, self.place(start)))
        if "::".join(scope) not in self.sizes.classes and len(name) > 1:
            owners = ["::".join(one + name[:-1]) for one in (scope, scope + [self.path])]
            self.sizes.members.append((owners, self.lines_of(start, self.closing[i])))
        return True

    def place(self, i):
        return f"{self.path}:{self.tokens[i][1]}"

    def lines_of(self, first, last):
        """With the comment right above."""
        above = self.tokens[first][1] - 1
        while above > 0 and self.lines[above - 1].lstrip().startswith("//"):
            above -= 1
        return self.tokens[last][1] - above


def tokens_of(text):
    """(word, line): without comments, directives and attributes, and with empty literals."""
    def blank(found):
        return (f" {LITERAL_WORD} " if found[0][0] not in "/#[" else "") + "\n" * found[0].count("\n")
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)
    for pattern in (LITERAL, DIRECTIVE, ATTRIBUTE):
        text = pattern.sub(blank, text)
    line, tokens = 1, []
    for token in TOKEN.findall(text):
        if token == "\n":
            line += 1
        else:
            tokens.append((token, line))
    return tokens


def closing_brackets(tokens):
    """{index of an opening bracket: of the closing one}, None if they don't match."""
    closing, opened = {}, []
    for i, (token, _) in enumerate(tokens):
        if token in "([{":
            opened.append(i)
        elif token in ")]}":
            if not opened or tokens[opened[-1]][0] + token not in ("()", "[]", "{}"):
                return None
            closing[opened.pop()] = i
    return closing if not opened else None


def without_template(words):
    """A declaration without its template head."""
    while words[:2] == ["template", "<"]:
        depth, groups = 0, 0
        for end, word in enumerate(words):
            groups += (word in "([") - (word in ")]")
            depth += ((word == "<") - (word == ">")) * (groups == 0)
            if depth == 0 and end > 0:
                break
        words = words[end + 1:]
    return words


def plainly(words):
    """What is declared, with `()` for each group, without template head, template arguments and alignment."""
    plain = without_groups(without_template(words))
    return [one for i, one in enumerate(plain) if one != "()" or plain[max(i - 1, 0)] not in {"alignas", "decltype"}]


def without_groups(words):
    """Each group in round or square brackets as `()`, template arguments left out."""
    kept, depth, angles = [], 0, 0
    for i, word in enumerate(words):
        if word in "([":
            depth += 1
        elif word in ")]":
            depth -= 1
            if depth == 0 and not angles:
                kept.append("()")
        elif depth:
            continue
        elif word == "<" and "operator" not in words[max(i - 2, 0):i]:
            angles += 1
        elif word == ">" and angles:
            angles -= 1
        elif not angles:
            kept.append(word)
    return kept


def class_name(plain):
    """The name of the class that a declaration begins to define, in parts; None if it defines none."""
    plain = [one for one in plain if one not in {"typedef", "static", "constexpr", "const", "inline", "alignas"}]
    if not plain or plain[0] not in CLASS_KEYS:
        return None
    head = plain[1:]
    head = head[:head.index(":")] if ":" in head else head
    if "=" in head or plain[-1] == "()":
        return None
    return [one for one in head if one not in {"::", "final"}] or ["(unnamed)"]


def is_body(plain, words):
    """Do the braces that follow hold the body of a function?"""
    if "enum" in plain[:2] or "()" not in plain:
        return False
    if "=" in plain and "operator" not in plain:
        return False
    if re.search(r"\brequires requires (\( [^()]*(\([^()]*\)[^()]*)* \) )?$", " ".join(words) + " "):
        return False
    arguments = plain.index("()")
    if ":" in plain[arguments:]:  # initializers of members; the body comes after the last of them
        return words[-1] in {")", "{}"}
    return True


def function_name(plain):
    if "operator" in plain:
        at = plain.index("operator")
        last, before = "operator " + "".join(plain[at + 1:at + 3]), plain[:at]
    else:
        at = plain.index("()")
        last, before = plain[at - 1], plain[:at - 1]
        if before[-1:] == ["~"]:
            last, before = "~" + last, before[:-1]
    names = [last]
    while before[-1:] == ["::"] and len(before) > 1:
        names.insert(0, before[-2])
        before = before[:-2]
    return names


def data_members(words):
    """How many data members a declaration in a class makes."""
    if words == ["{}"]:
        return 0
    pointers = " ".join(words).count("( *")  # to functions
    plain = plainly(words)
    if not plain or NO_DATA & set(plain):
        return 0
    if plain[0] in CLASS_KEYS and "{}" in plain:
        return 0 if plain[-1] == "{}" and len(plain) > 2 else 1
    if plain[0] in CLASS_KEYS and len(plain) == 2:
        return 0  # a declaration ahead
    declared = plain
    for end in ("=", "{}"):
        declared = declared[:declared.index(end)] if end in declared else declared
    if "()" in declared and not pointers:
        return 0
    return 1 + plain.count(",")


OWN = """
#include <x>
namespace acc {
namespace {
// Not counted: #2 {
bool is_small(int a) {
  return a < 3 && text == "}";
}
}  // namespace
/// What it is.
template <class T, std::size_t N = (1 < 2)>
class Box final : public Base<T> {
 public:
  using Row = std::map<int, T>;
  enum class Kind { one, two };
  explicit Box(int a) : a_{a}, row_{{1, T{}}} { go(); }
  Box(const Box&) = delete;
  ~Box();
  [[nodiscard]] bool operator()(int x) const noexcept { return x != a_; }
  [[nodiscard]] Kind kind() const { return kind_; }
  struct Inner {
    int x = 1, y = 2;
  };
 private:
  static constexpr int kRows[] = {1, 2};
  std::function<void(int, T)> hook_;
  int a_;
  alignas(64) std::atomic<int> count_{0};
  Row row_;
  int (*entry_)(int);
  const Kind kind_ = Kind::one;
  struct { int z; } last_;
  std::unique_ptr<Inner> own_ = nullptr;
};
template <class T>
// why it does
Box<T>::~Box() {
  for (auto& one : row_) one = {};
}
void Box<int>::Inner::move(std::span<int> s) requires(true) {}
std::ostream& operator<<(std::ostream& out, const Box<int>& box) { return out << box; }
constexpr auto kLater = [](int a) { return a; };
extern "C" {
int acc_go(void) { return 1'000; }
}
}  // namespace acc
"""


def check_self():
    sizes = Sizes()
    sizes.read("own.cpp", OWN)
    sizes.read("broken.cpp", "void go() { if (a }")
    lines = {one.name: one.lines for one in sizes.functions}
    expected = {"acc::own.cpp::is_small": 3, "acc::Box::Box": 1, "acc::Box::operator ()()": 1, "acc::Box::kind": 1, "acc::Box::~Box": 5,
                "acc::Box::Inner::move": 1, "acc::operator <<": 1, "acc::acc_go": 1}
    if lines != expected:
        yield f"own check of sizes: functions {sorted(lines.items() ^ expected.items())}"
    classes = {one.name: (one.lines, one.members) for one in sizes.class_sizes()}
    expected = {"acc::Box": (30, 8), "acc::Box::Inner": (4, 2), "acc::Box::(unnamed)": (1, 1)}
    if classes != expected:
        yield f"own check of sizes: classes {sorted(classes.items() ^ expected.items())}"
    if sizes.broken != ["broken.cpp"]:
        yield f"own check of sizes: {sizes.broken} can't be read"


def check_sizes(root):
    yield from check_self()
    sizes = Sizes()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in {".hpp", ".cpp", ".h", ".cu"}:
                sizes.read(str(path.relative_to(root)), path.read_text())
    for path in sizes.broken:
        yield f"{path}: its brackets can't be matched (house_sizes.py)"
    for one in sizes.functions:
        if one.lines > MAX_FUNCTION_LINES:
            yield f"{one.where}: {one.name} has {one.lines} lines, {MAX_FUNCTION_LINES} at most"
    small = set(ARGUED)
    for one in sizes.class_sizes():
        limits = ARGUED.get(one.name, Limits(""))
        if one.lines > limits.lines:
            yield f"{one.where}: {one.name} has {one.lines} lines, {limits.lines} at most: which second noun has state of its own?"
        if one.members > limits.members:
            yield f"{one.where}: {one.name} has {one.members} data members, {limits.members} at most: which of them belong together?"
        if one.lines > MAX_CLASS_LINES or one.members > MAX_DATA_MEMBERS:
            small.discard(one.name)
    for name in sorted(small):
        yield f"{name} is within the limits now: take it out of ARGUED in house_sizes.py"
    for name, limits in ARGUED.items():
        page = root / "docs/decisions" / limits.page
        if not page.exists() or name.rpartition("::")[2] not in page.read_text():
            yield f"docs/decisions/{limits.page} doesn't argue {name}"
