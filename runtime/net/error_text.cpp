#include "runtime/net/error_text.hpp"

#include "common/text.hpp"
#include "runtime/net/fields.hpp"

namespace acc::runtime {

std::string to_text(const Error& error) {
  std::string ranks;
  for (const int rank : error.ranks()) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
  return pack({"acc-error", std::to_string(static_cast<int>(error.code())), error.what(), ranks,
               error.operation(), std::to_string(error.sequence())});
}

std::optional<Error> parse_error(std::string_view text) {
  auto fields = unpack(text);
  if (!fields || fields->size() != 6 || fields->front() != "acc-error") return std::nullopt;
  const auto code = parse_number<int>(fields->at(1));
  const auto sequence = parse_number<std::uint64_t>(fields->at(5));
  if (!code || *code < 0 || *code > static_cast<int>(ErrorCode::nccl) || !sequence)
    return std::nullopt;
  std::vector<int> ranks;
  if (!fields->at(3).empty()) {
    for (const auto& word : split(fields->at(3), ',')) {
      const auto rank = parse_number<int>(word);
      if (!rank) return std::nullopt;
      ranks.push_back(*rank);
    }
  }
  return Error{static_cast<ErrorCode>(*code), fields->at(2), std::move(ranks), fields->at(4),
               *sequence};
}

}  // namespace acc::runtime
