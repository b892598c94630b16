#include "runtime/net/recorded_store.hpp"

#include "runtime/net/fields.hpp"

#include <exception>
#include <vector>

namespace acc::runtime {

void RecordedStore::set(const std::string& key, const std::string& value) {
  note(key);
  store_->set(key, value);
}

std::int64_t RecordedStore::add(const std::string& key, std::int64_t delta) {
  if (delta != 0) note(key);  // with 0 a counter is only read
  return store_->add(key, delta);
}

void RecordedStore::note(const std::string& key) {
  const std::lock_guard lock{mutex_};
  written_.insert(key);
}

void RecordedStore::leave(const std::string& key, int rank, int size) noexcept {
  const auto list_of = [&](int member) { return key + "/left/" + std::to_string(member); };
  const auto count = key + "/left";
  try {
    {
      const std::lock_guard lock{mutex_};
      store_->set(list_of(rank), pack(std::vector<std::string>{written_.begin(), written_.end()}));
    }
    if (store_->add(count, 1) != size) return;
    for (int member = 0; member < size; ++member) {
      const auto list = store_->peek(list_of(member));
      const auto keys = list ? unpack(*list) : std::nullopt;
      if (keys)
        for (const auto& one : *keys) store_->remove(one);
      store_->remove(list_of(member));
    }
    store_->remove(count);
  } catch (const std::exception&) {
    return;  // rank 0, which serves it, has ended; or a round has, and its keys with it
  }
}

}  // namespace acc::runtime
