#include "agent/evidence/stack_text.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace acc::agent::evidence {

namespace {

constexpr std::size_t kMostThreads = 512;
constexpr std::size_t kMostFrames = 64;

// Functions of what waits for the other ranks: collectives (and a GPU: is_wait_for_gpu) …
constexpr std::array<std::string_view, 13> kWaits{"gloo::",
                                                  "c10d::",
                                                  "ncclGroup",
                                                  "ncclAll",
                                                  "MPI_",
                                                  "PMPI_",
                                                  "ompi_",
                                                  "MPID",
                                                  "acc_all_",
                                                  "acc_barrier",
                                                  "acc::runtime::Group",
                                                  "acc::runtime::shm",
                                                  "acc::runtime::tcp"};
// … and files of Python's. Its backward waits there for gradients of others, or computes: only the
// native stack can tell.
constexpr std::array<std::string_view, 2> kWaitingFiles{"torch/distributed/", "torch/nn/parallel/"};
// A checkpoint is written there, to a file system that may hang.
constexpr std::string_view kCheckpoint = "torch/distributed/checkpoint/";
constexpr std::string_view kBackward = "torch/autograd/";
// Of a native stack: those further out only led here. Of the inside of a driver, which needn't have
// names, there may be as many.
constexpr std::size_t kNearFrames = 16;
constexpr std::string_view kUnknown = "??";
// What a wait or a sleep is made of, below the program's own functions: whole names, and
// beginnings.
constexpr std::array<std::string_view, 21> kSystem{
    "clock_nanosleep", "nanosleep", "poll",          "epoll_wait", "select",
    "syscall",         "read",      "recv",          "raise",      "usleep",
    "sleep",           "kill",      "sched_yield",   "??",         "accept",
    "wait4",           "_start",    "clock_gettime", "pause",      "sigsuspend",
    "waitid"};
constexpr std::array<std::string_view, 9> kSystemBeginnings{
    "__",      "futex",      "pthread_",         "sem_", "std::this_thread", "std::chrono",
    "ep_poll", "cfunction_", "method_vectorcall"};

// "wait (threading.py:320)" says less than the line of the program that calls it.
bool is_of_standard_library(const Frame& frame) {
  return frame.place.find("/lib/python3") != std::string::npos &&
         frame.place.find("-packages/") == std::string::npos;
}

std::string_view base_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "PyObject_Call", "_PyEval_EvalFrameDefault". Of a stripped interpreter these are the only names: its
// other functions are shown as the one that lies before them.
bool is_of_interpreter(std::string_view name) {
  if (name.starts_with('_')) name.remove_prefix(1);
  if (!name.starts_with("Py")) return false;
  const auto is_of_word = [](unsigned char c) { return std::isalnum(c) != 0; };
  const auto end = std::ranges::find_if_not(name, is_of_word);
  return end != name.end() && *end == '_';
}

// "read@@GLIBC_2.2.5"
std::string_view without_version(std::string_view function) {
  return function.substr(0, function.find('@'));
}

// A function template's name begins with its type: "void std::this_thread::sleep_for<…>", which a
// program without optimization calls.
std::string_view without_type(std::string_view name) {
  constexpr std::string_view kVoid = "void ";
  if (name.starts_with(kVoid)) name.remove_prefix(kVoid.size());
  return name;
}

bool is_of_system(std::string_view function) {
  const auto name = without_type(without_version(function));
  if (is_of_interpreter(name)) return true;
  if (std::ranges::find(kSystem, name) != kSystem.end()) return true;
  return std::ranges::any_of(kSystemBeginnings,
                             [&](auto beginning) { return name.starts_with(beginning); });
}

// "cudaStreamSynchronize", "cuMemcpyDtoHAsync_v2", "hipMemcpyWithStream": a copy to or from
// pageable memory waits for all that is queued before it, which may be a collective.
bool is_wait_for_gpu(std::string_view function) {
  constexpr std::array<std::string_view, 3> kLibraries{"cuda", "cu", "hip"};
  const auto name = without_version(function);
  return std::ranges::any_of(kLibraries, [&](std::string_view library) {
    if (!name.starts_with(library)) return false;
    const auto call = name.substr(library.size());
    const bool is_call = !call.empty() && std::isupper(static_cast<unsigned char>(call[0])) != 0;
    return is_call &&
           (call.starts_with("Memcpy") || call.find("Synchronize") != std::string_view::npos);
  });
}

bool is_wait(const Frame& frame) {
  const auto is_in = [](std::string_view text) {
    return [text](std::string_view word) { return text.find(word) != std::string_view::npos; };
  };
  if (frame.place.find(kCheckpoint) != std::string::npos) return false;
  return std::ranges::any_of(kWaits, is_in(frame.function)) || is_wait_for_gpu(frame.function) ||
         std::ranges::any_of(kWaitingFiles, is_in(frame.place));
}

bool is_of_python(const Frame& frame) { return frame.place.find(".py:") != std::string::npos; }

// Up to the arguments; a name may hold blanks and parentheses: "f<void ()>::g() const (this=0x0)".
std::string_view name_in(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ' && depth == 0 && i + 1 < text.size() && text[i + 1] == '(')
      return text.substr(0, i);
    if (c == '<' || c == '(') ++depth;
    if ((c == '>' || c == ')') && depth > 0) --depth;
  }
  return text;
}

// "#3  0x00007f… in f (a=1) at dir/x.cpp:31", "#0 0x00007f… read - /lib/x.so", "… from /lib/x.so"
std::optional<Frame> native_frame(std::string_view line) {
  line = trim(line);
  if (line.size() < 3 || line[0] != '#' || std::isdigit(static_cast<unsigned char>(line[1])) == 0)
    return std::nullopt;
  line = trim(line.substr(std::min(line.find(' '), line.size())));
  if (line.starts_with("0x")) line = trim(line.substr(std::min(line.find(' '), line.size())));
  if (line.starts_with("in ")) line = line.substr(3);
  Frame frame;
  for (const std::string_view mark : {" at ", " from ", " - "}) {
    const auto at = line.rfind(mark);
    if (at == std::string_view::npos) continue;
    frame.place = printable(base_of(line.substr(at + mark.size())), 120);
    line = line.substr(0, at);
    break;
  }
  std::string name{trim(name_in(line))};
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (auto at = name.find(kUnnamed); at != std::string::npos; at = name.find(kUnnamed))
    name.erase(at, kUnnamed.size());
  frame.function = printable(name, 200);
  if (frame.function.empty()) frame.function = kUnknown;
  return frame;
}

// "Thread 2 (Thread 0x7f… (LWP 4711) "x"):", "TID 4711:"
std::optional<pid_t> native_thread(std::string_view line) {
  std::string_view number;
  if (const auto at = line.find("(LWP ");
      at != std::string_view::npos && line.starts_with("Thread "))
    number = line.substr(at + 5);
  else if (line.starts_with("TID "))
    number = line.substr(4);
  else
    return std::nullopt;
  const auto end = std::min(number.find_first_not_of("0123456789"), number.size());
  return parse_number<pid_t>(number.substr(0, end));
}

// "  File "/a/train.py", line 31 in work" or, of py-spy, "    work (train.py:31)"
std::optional<Frame> python_frame(std::string_view line) {
  if (!line.starts_with("  ")) return std::nullopt;
  line = trim(line);
  if (line.starts_with("File \"")) {
    line.remove_prefix(6);
    const auto quote = line.find("\", line ");
    const auto in = line.find(" in ", std::min(quote, line.size()));
    if (quote == std::string_view::npos || in == std::string_view::npos || in < quote)
      return std::nullopt;
    return Frame{printable(line.substr(in + 4), 200),
                 printable(std::string{line.substr(0, quote)} + ":" +
                               std::string{line.substr(quote + 8, in - quote - 8)},
                           300)};
  }
  const auto open = line.rfind(" (");
  if (open == std::string_view::npos || line.back() != ')') return std::nullopt;
  return Frame{printable(line.substr(0, open), 200),
               printable(line.substr(open + 2, line.size() - open - 3), 300)};
}

template <class Act>
void each_line(std::string_view text, Act act) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    act(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void add_frame(std::vector<ThreadStack>& stacks, std::optional<Frame> frame) {
  if (!frame || stacks.empty() || stacks.back().frames.size() >= kMostFrames) return;
  stacks.back().frames.push_back(std::move(*frame));
}

void put_first(std::vector<ThreadStack>& stacks, std::size_t first) {
  const auto at = stacks.begin() + static_cast<std::ptrdiff_t>(first);
  if (first < stacks.size()) std::rotate(stacks.begin(), at, at + 1);
  std::erase_if(stacks, [](const ThreadStack& stack) { return stack.frames.empty(); });
}

}  // namespace

std::vector<ThreadStack> native_stacks(std::string_view text, pid_t main) {
  std::vector<ThreadStack> stacks;
  std::size_t first = 0;
  each_line(text, [&](std::string_view line) {
    if (const auto thread = native_thread(line); thread && stacks.size() < kMostThreads) {
      if (*thread == main) first = stacks.size();
      stacks.push_back({"thread " + std::to_string(*thread), {}});
    } else {
      add_frame(stacks, native_frame(line));
    }
  });
  put_first(stacks, first);
  return stacks;
}

std::vector<ThreadStack> python_stacks(std::string_view text) {
  std::vector<ThreadStack> stacks;
  std::size_t first = 0;
  bool is_first_known = false;
  bool is_cut = false;
  each_line(text, [&](std::string_view line) {
    is_cut = is_cut || line == "...";
    const bool is_current = line.starts_with("Current thread ");
    if ((is_current || line.starts_with("Thread ")) && stacks.size() < kMostThreads) {
      const bool is_first = is_current || line.find("\"MainThread\"") != std::string_view::npos;
      if (is_first) first = stacks.size();
      is_first_known = is_first_known || is_first;
      stacks.push_back({printable(line, 100), {}});
    } else {
      add_frame(stacks, python_frame(line));
    }
  });
  put_first(stacks, first);
  // faulthandler writes a hundred threads, the newest first.
  if (is_cut && !is_first_known)
    stacks.insert(stacks.begin(), {"main thread: not among those that faulthandler wrote", {}});
  return stacks;
}

static bool is_wait_for_thread(const Frame& frame) {
  const auto is_in = [&](std::string_view file) {
    return frame.place.find(file) != std::string::npos;
  };
  return (frame.function == "join" && is_in("/threading.py:")) ||
         (frame.function == "result" && is_in("/concurrent/futures/"));
}

static bool is_wait_for_work(const Frame& frame) {
  constexpr std::array<std::string_view, 4> kNames{"wait", "get", "select", "poll"};
  return std::ranges::find(kNames, frame.function) != kNames.end();
}

std::size_t working_thread(const std::vector<ThreadStack>& python) {
  const auto is_own = [](const Frame& frame) { return !is_of_standard_library(frame); };
  if (python.empty()) return 0;
  const auto& frames = python.front().frames;
  const auto innermost_own = std::ranges::find_if(frames, is_own);
  const bool waits_for_thread = std::any_of(frames.begin(), innermost_own, is_wait_for_thread);
  if (!waits_for_thread) return 0;
  // Beside it there may be threads of libraries, which mostly wait for work.
  std::size_t found = 0;
  bool is_found_at_work = false;
  for (std::size_t i = 1; i < python.size(); ++i) {
    const auto own = std::ranges::find_if(python[i].frames, is_own);
    if (own == python[i].frames.end()) continue;
    if (waits_for_others(python[i])) return i;
    const bool is_at_work = std::none_of(python[i].frames.begin(), own, is_wait_for_work);
    if (is_at_work || !is_found_at_work) found = i;
    is_found_at_work = is_found_at_work || is_at_work;
  }
  return found;
}

bool waits_for_others(const ThreadStack& stack) {
  if (stack.frames.empty()) return false;
  // A function of the program may be called from within these files: only the innermost frame
  // counts.
  if (is_of_python(stack.frames.front())) return is_wait(stack.frames.front());
  std::size_t near = 0;
  for (const auto& frame : stack.frames) {
    if (frame.function == kUnknown) continue;
    if (is_wait(frame)) return true;
    if (++near == kNearFrames) return false;
  }
  return false;
}

bool may_be_in_library(const ThreadStack& python) {
  return !python.frames.empty() && !is_of_standard_library(python.frames.front());
}

bool is_in_backward(const ThreadStack& stack) {
  return !stack.frames.empty() && stack.frames.front().place.find(kBackward) != std::string::npos;
}

bool is_past_python(const ThreadStack& native) {
  const auto is_python = [](const Frame& frame) {
    return frame.function.starts_with("_PyEval_") || frame.function.starts_with("PyEval_");
  };
  const auto is_end = [](const Frame& frame) {
    const auto name = without_version(frame.function);
    return name == "Py_FinalizeEx" || name == "__run_exit_handlers";
  };
  return std::ranges::any_of(native.frames, is_end) &&
         std::ranges::none_of(native.frames, is_python);
}

std::string key_of(const ThreadStack& stack) {
  const bool waits = waits_for_others(stack);
  std::string key;
  for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) {
    if (!key.empty()) key += " > ";
    key += frame->function + "@" + frame->place;
    if (waits && is_wait(*frame)) break;
  }
  return key;
}

// "__GI___clock_nanosleep", "clock_nanosleep@@GLIBC_2.17"
static std::string call_of(std::string_view function) {
  auto name = without_version(function);
  if (name.starts_with("__GI_")) name.remove_prefix(5);
  name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  return std::string{name};
}

// "acc::runtime::ProcessGroup::recv(void*, unsigned long)" without its arguments; gdb's names have
// none. Of "f<void (int)>::operator()(int)" and "(anonymous namespace)::g()" the last ones.
static std::string without_arguments(const std::string& function) {
  int depth = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    const auto before = std::string_view{function}.substr(0, i);
    if (c == '(' && depth == 0 && !before.empty() && !before.ends_with("operator") &&
        !before.ends_with(':'))
      return std::string{before};
    if (c == '<' || c == '(' || c == '{') ++depth;
    if ((c == '>' || c == ')' || c == '}') && depth > 0) --depth;
  }
  return function;
}

// The call of the program into our runtime, of which only the runtime's own functions are inside.
template <class Frames>
static auto public_call(Frames inside, Frames end) {
  const auto is_of_runtime = [](const Frame& frame) {
    return frame.function.starts_with("acc::runtime::") || frame.function.starts_with("acc_");
  };
  auto call = inside;
  for (auto frame = inside; frame != end; ++frame) {
    if (is_of_runtime(*frame)) {
      call = frame;
    } else if (!frame->function.starts_with("std::") && frame->function != kUnknown) {
      break;
    }
  }
  return is_of_runtime(*inside) ? call : inside;
}

std::string place_of(const ThreadStack& stack) {
  const bool is_interpreted = std::ranges::any_of(
      stack.frames, [](const Frame& frame) { return is_of_interpreter(frame.function); });
  const auto is_own = [&](const Frame& frame) {
    return !is_of_system(frame.function) && frame.place.find("libc") == std::string::npos &&
           !(is_interpreted && frame.function == "main");
  };
  auto own = std::ranges::find_if(stack.frames, [&](const Frame& frame) {
    return is_own(frame) && !is_of_standard_library(frame);
  });
  if (own == stack.frames.end()) own = std::ranges::find_if(stack.frames, is_own);
  if (own == stack.frames.end()) {
    // What it waits in is all that is known of it.
    const auto named = std::ranges::find_if(
        stack.frames, [](const Frame& frame) { return frame.function != kUnknown; });
    return named == stack.frames.end() ? std::string{} : call_of(named->function);
  }
  own = public_call(own, stack.frames.end());
  const std::string place{base_of(own->place)};
  return without_arguments(own->function) + (place.empty() ? "" : " (" + place + ")");
}

}  // namespace acc::agent::evidence
