#include "runtime/bootstrap/exchange.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/fields.hpp"
#include "runtime/bootstrap/mailbox.hpp"
#include "runtime/bootstrap/member.hpp"

namespace acc::runtime {

namespace {

Mailbox letters(Store& store, const std::string& key) { return {store, key + "/letters"}; }

std::vector<std::string> collect(Store& store, const std::string& key, std::size_t size,
                                 Store::Deadline deadline) {
  std::vector<std::string> texts(size);
  auto mail = letters(store, key);
  for (std::size_t came = 0; came < size; ++came) {
    const auto letter = mail.next(deadline);
    if (auto error = parse_error(letter)) throw *std::move(error);
    auto fields = unpack(letter);
    const auto number =
        fields && fields->size() == 2 ? parse_number<std::size_t>(fields->front()) : std::nullopt;
    if (!number || *number >= size)
      throw Error{ErrorCode::system, "a letter in '" + key + "' that can't be read"};
    texts[*number] = std::move(fields->at(1));
  }
  return texts;
}

}  // namespace

std::vector<std::string> exchange(Store& store, const std::string& key, std::size_t number,
                                  std::size_t size, const std::string& text,
                                  const std::string& what, Store::Deadline deadline) {
  const auto late = [&](const Error& error) {
    if (error.code() != ErrorCode::timed_out || !error.ranks().empty()) return error;
    return Error{ErrorCode::timed_out, what + " didn't all come in time: " + error.what()};
  };
  letters(store, key).put(pack({std::to_string(number), text}));
  try {
    if (number == 0) {
      auto texts = collect(store, key, size, deadline);
      store.set(key + "/all", pack(texts));
      return texts;
    }
    const auto all = store.get(key + "/all", deadline);
    if (auto error = parse_error(all)) throw *std::move(error);
    auto texts = unpack(all);
    if (!texts || texts->size() != size)
      throw Error{ErrorCode::system, what + ": what rank 0 wrote can't be read"};
    return *std::move(texts);
  } catch (const Error& error) {
    const auto told = late(error);
    if (number == 0) {
      try {
        store.set(key + "/all", to_text(told));
      } catch (const std::exception&) {
        throw told;  // the store is gone: the others see that by themselves
      }
    }
    throw told;
  }
}

void exchange_failure(Store& store, const std::string& key, const Error& error) noexcept {
  try {
    letters(store, key).put(to_text(error));
  } catch (const std::exception&) {
    return;  // the store is gone: the others see that by themselves
  }
}

}  // namespace acc::runtime
