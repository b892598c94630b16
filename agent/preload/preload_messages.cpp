#include "agent/preload/preload_messages.hpp"

#include "common/text.hpp"

#include <charconv>

namespace acc::agent::preload {

namespace {

constexpr std::size_t kLongestText = 300;

std::string words(std::string_view text) { return printable(std::string{text}, kLongestText); }

std::optional<LocalRank> local_rank(std::string_view text) {
  const auto number = parse_number<std::uint32_t>(text);
  return number ? std::optional{LocalRank{*number}} : std::nullopt;
}

std::optional<pid_t> process(std::string_view text) {
  const auto number = parse_number<pid_t>(text);
  return number && *number > 1 ? number : std::nullopt;
}

std::optional<double> seconds(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
  return is_whole && value >= 0 && value < 1e9 ? std::optional{value} : std::nullopt;
}

using Fields = std::vector<std::string>;

std::optional<Message> decode_ready(const Fields& f) {
  const auto took = seconds(f[1]);
  const auto bytes = parse_number<std::uint64_t>(f[2]);
  if (!took || !bytes) return std::nullopt;
  return Ready{*took, *bytes, words(f[3])};
}

std::optional<Message> decode_waits(const Fields& f) {
  const auto fork = parse_number<ForkNumber>(f[1]);
  const auto bytes = parse_number<std::uint64_t>(f[2]);
  if (!fork || !bytes) return std::nullopt;
  return Waits{*fork, *bytes};
}

std::optional<Message> decode_worker(const Fields& f) {
  const auto fork = parse_number<ForkNumber>(f[1]);
  const auto local = local_rank(f[2]);
  const auto pid = process(f[3]);
  if (!fork || !local || !pid) return std::nullopt;
  return WorkerMade{*fork, *local, *pid};
}

std::optional<Message> decode_failed(const Fields& f) {
  const auto fork = parse_number<ForkNumber>(f[1]);
  const auto local = local_rank(f[2]);
  if (!fork || !local) return std::nullopt;
  return WorkerFailed{*fork, *local, words(f[4])};
}

std::optional<Message> decode_made(const Fields& f) {
  const auto fork = parse_number<ForkNumber>(f[1]);
  const auto status = parse_number<int>(f[2]);
  const auto bytes = parse_number<std::uint64_t>(f[3]);
  if (!fork || !status || !bytes) return std::nullopt;
  return Made{*fork, *status, *bytes};
}

std::string joined(std::initializer_list<std::string_view> fields) {
  std::string packet;
  for (const auto field : fields) packet.append(field).append(1, '\0');
  packet.pop_back();
  return packet;
}

}  // namespace

std::optional<Message> decode(std::string_view packet) {
  const Fields fields = split(packet, '\0');
  const auto is = [&](std::string_view name, std::size_t count) {
    return fields.front() == name && fields.size() == count;
  };
  if (is("started", 1)) return Started{};
  if (is("importing", 2)) return Importing{words(fields[1])};
  if (is("ready", 4)) return decode_ready(fields);
  if (is("unsafe", 3)) return Unsafe{words(fields[1]), words(fields[2])};
  if (is("waits", 3)) return decode_waits(fields);
  if (is("worker", 4)) return decode_worker(fields);
  if (is("failed", 5)) return decode_failed(fields);
  if (is("made", 4)) return decode_made(fields);
  if (!is("maker", 3)) return std::nullopt;
  const auto fork = parse_number<ForkNumber>(fields[1]);
  const auto pid = process(fields[2]);
  return fork && pid ? std::optional<Message>{Maker{*fork, *pid}} : std::nullopt;
}

std::string encode_begin(pid_t agent, std::string_view modules,
                         const std::vector<std::string>& own_names) {
  return joined({"begin", std::to_string(agent), modules, join(own_names, ",")});
}

std::string encode_round(ForkNumber fork, pid_t example) {
  return joined({"round", std::to_string(fork), std::to_string(example)});
}

std::string encode_worker(LocalRank local,
                          std::pair<std::size_t, std::size_t> environment,
                          const std::vector<std::uint32_t>& cores, bool takes_terminal) {
  std::string list;
  for (const auto core : cores) list += (list.empty() ? "" : ",") + std::to_string(core);
  return joined({"worker", std::to_string(local.value()), std::to_string(environment.first),
                 std::to_string(environment.second), list, takes_terminal ? "1" : "0"});
}

std::string encode_collect(ForkNumber fork) {
  return joined({"collect", std::to_string(fork)});
}

std::pair<std::size_t, std::size_t> Environments::add(const char* const* envp) {
  const std::size_t begin = text_.size();
  for (; *envp != nullptr; ++envp) text_.append(*envp).append(1, '\0');
  return {begin, text_.size() - begin};
}

}  // namespace acc::agent::preload
