#include "runtime/checkpoint/agreement.hpp"

#include "runtime/checkpoint/manifest.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <string_view>

namespace acc::runtime::checkpoint {

CallOptions call_for_files(const ProcessGroup& group) {
  const Millis limit = group.timeout();
  CallOptions how;
  how.timeout = limit == Millis{0} ? limit : std::max(limit, kFilesTimeout);
  return how;
}

std::vector<std::string> agree(ProcessGroup& group, const std::function<std::string()>& mine) {
  std::string text;
  try {
    text = "+" + mine();
  } catch (...) {
    text = "-" + to_text(std::optional{as_error(std::current_exception())});
  }
  auto texts = group.all_gather_object(text, call_for_files(group));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].starts_with('+')) {
      texts[rank].erase(0, 1);
      continue;
    }
    const auto failure = parse_failure(std::string_view{texts[rank]}.substr(1));
    throw Error{failure->code(),
                "rank " + std::to_string(rank) + ": " + failure->what(),
                {static_cast<int>(rank)},
                "checkpoint"};
  }
  return texts;
}

Error as_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::system, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::system, error.what()};
  } catch (...) {
    return {ErrorCode::system, "an exception of an unknown type"};
  }
}

}  // namespace acc::runtime::checkpoint
