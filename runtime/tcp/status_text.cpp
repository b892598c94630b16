#include "runtime/tcp/status_text.hpp"

#include "common/text.hpp"
#include "runtime/net/fields.hpp"

#include <array>
#include <vector>

namespace acc::runtime::tcp {

using shm::RankStatus;

std::string to_text(const RankStatus& status) {
  std::vector<std::string> fields;
  for (const bool is : {status.has_joined, status.is_stopped, status.is_waiting})
    fields.push_back(is ? "1" : "0");
  for (const auto number : {status.arrived, status.completed})
    fields.push_back(std::to_string(number));
  for (const auto& wait : status.waits) {
    fields.push_back(std::to_string(static_cast<unsigned>(wait.operation)));
    fields.push_back(std::to_string(wait.of));
  }
  fields.push_back(status.collective);
  fields.push_back(status.last);
  return pack(fields);
}

std::optional<RankStatus> parse_status(const std::string& text) {
  const auto fields = unpack(text);
  if (!fields || fields->size() != 11) return std::nullopt;
  std::array<std::uint32_t, 9> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number = parse_number<std::uint32_t>((*fields)[i]);
    if (!number) return std::nullopt;
    numbers[i] = *number;
  }
  RankStatus made;
  made.source = RankStatus::Source::rank;
  made.has_joined = numbers[0] != 0;
  made.is_stopped = numbers[1] != 0;
  made.is_waiting = numbers[2] != 0;
  made.arrived = numbers[3];
  made.completed = numbers[4];
  for (std::size_t lane = 0; lane < made.waits.size(); ++lane) {
    const auto operation = numbers[5 + 2 * lane];
    if (operation > static_cast<std::uint32_t>(Operation::allocate)) return std::nullopt;
    made.waits[lane] = {static_cast<Operation>(operation), numbers[6 + 2 * lane]};
  }
  made.collective = printable((*fields)[9]);
  made.last = printable((*fields)[10], 1000);
  return made;
}

}  // namespace acc::runtime::tcp
