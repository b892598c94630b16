// Plays a transport and the acc-launch behind it: `acc-launch --launch_agent fake_host --hosts …`. It
// answers `prepare` and `go` on its standard input as a host does whose job ends at once, so that
// what a launch over a thousand hosts costs the launching node can be measured without a thousand hosts.
//
//   fake_host VERSION HOST COMMAND     the version that it says it has; the rest is ignored
#include <unistd.h>

#include <string>

int main(int argc, char** argv) {
  const std::string version = argc > 1 ? argv[1] : "";
  std::string held;
  std::string mark;
  char bytes[4096];
  for (;;) {
    const auto n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n <= 0) return 0;  // the life line is closed
    held.append(bytes, static_cast<std::size_t>(n));
    for (auto end = held.find('\n'); end != std::string::npos; end = held.find('\n')) {
      const std::string line = held.substr(0, end);
      held.erase(0, end + 1);
      std::string answer;
      if (line.starts_with("prepare ")) {
        mark = "\036acc-node " + line.substr(8);
        answer = mark + " prepared " + version + "\n";
      } else if (line == "go") {
        answer = mark + " ended 0\n";
      }
      if (!answer.empty() && ::write(STDOUT_FILENO, answer.data(), answer.size()) < 0) return 1;
    }
  }
}
