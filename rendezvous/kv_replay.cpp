#include "rendezvous/kv_replay.hpp"

namespace acc::rendezvous {

void KvReplay::note(const KvRequest& asked, const KvReply& answer) {
  using Op = KvRequest::Op;
  using Status = KvReply::Status;
  if (asked.op == Op::remove && answer.status == Status::missing) return drop(asked.key);
  if (answer.status != Status::ok) return;
  switch (asked.op) {
    case Op::set:
    case Op::compare_set:
      return remember(asked.key, asked.value);
    case Op::add:
      if (Share* share = share_of(asked.key);
          share != nullptr && __builtin_add_overflow(share->added, asked.delta, &share->added))
        complete_ = false;
      return;
    case Op::remove:
      return drop(asked.key);
    default:
      return;
  }
}

// Null when there is no room.
KvReplay::Share* KvReplay::share_of(const std::string& key) {
  if (const auto found = shares_.find(key); found != shares_.end()) return &found->second;
  if (shares_.size() >= limits_.keys || bytes_ + key.size() > limits_.bytes) {
    complete_ = false;
    return nullptr;
  }
  bytes_ += key.size();
  return &shares_[key];
}

void KvReplay::remember(const std::string& key, const std::string& value) {
  Share* const share = share_of(key);
  if (share == nullptr) return;
  const std::size_t freed = share->value ? share->value->size() : 0;
  if (bytes_ - freed + value.size() > limits_.bytes) {
    complete_ = false;
    return drop(key);  // no value is better than an outdated one
  }
  bytes_ = bytes_ - freed + value.size();
  *share = {value, 0};
}

void KvReplay::drop(const std::string& key) {
  const auto found = shares_.find(key);
  if (found == shares_.end()) return;
  bytes_ -= key.size() + (found->second.value ? found->second.value->size() : 0);
  shares_.erase(found);
}

void KvReplay::forget() {
  shares_.clear();
  bytes_ = 0;
  complete_ = true;
}

std::vector<KvRestore> KvReplay::tell() const {
  std::vector<KvRestore> told;
  told.reserve(shares_.size());
  for (const auto& [key, share] : shares_) {
    if (share.value) {
      told.push_back({key, *share.value, 0});
    } else if (share.added == 0) {
      told.push_back({key, "0", 0});  // a counter that is back at its start exists all the same
    }
    if (share.added != 0) told.push_back({key, {}, share.added});
  }
  return told;
}

}  // namespace acc::rendezvous
