#include "agent/evidence/native_tool.hpp"

#include "common/text.hpp"

#include <utility>

namespace acc::agent::evidence {

std::vector<std::string> NativeTool::words(pid_t pid) const {
  const auto number = std::to_string(pid);
  if (kind == Kind::eu_stack) return {path, "-p", number, "-n", "64"};
  return {path,
          "-p",
          number,
          "-batch",
          "-nx",
          "-iex",
          "set auto-load off",
          "-iex",
          "set debuginfod enabled off",
          "-ex",
          "set width 0",
          "-ex",
          "set print frame-arguments none",
          "-ex",
          "thread apply all bt 48"};
}

std::string NativeTool::name() const {
  return kind == Kind::eu_stack ? "eu-stack" : kind == Kind::gdb ? "gdb" : "";
}

NativeTool choose_native_tool(Purpose purpose, std::string eu_stack, std::string gdb) {
  if (!eu_stack.empty()) return {NativeTool::Kind::eu_stack, std::move(eu_stack)};
  if (purpose == Purpose::look || gdb.empty()) return {};
  return {NativeTool::Kind::gdb, std::move(gdb)};
}

std::string missing_native_tool(Purpose purpose, const std::vector<std::string>& nodes) {
  if (nodes.empty()) return {};
  return "no native stacks of node " + join(nodes, ", ") +
         ": they need eu-stack (apt-get install elfutils)" +
         (purpose == Purpose::look ? "; gdb would stop each worker for seconds and isn't used" : "");
}

}  // namespace acc::agent::evidence
