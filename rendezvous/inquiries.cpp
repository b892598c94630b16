#include "rendezvous/inquiries.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace acc::rendezvous {

namespace {

constexpr std::size_t kMostInquiries = 4096;

}  // namespace

void Inquiries::add(const Inquiry& inquiry) {
  if (pending_.size() < kMostInquiries) pending_.push_back(inquiry);
}

std::vector<Inquiries::Inquiry> Inquiries::take_answered(Instant proof) {
  // No std::ranges: clang 14, which builds the fuzz targets, can't take its subrange apart.
  const auto answered = std::stable_partition(
      pending_.begin(), pending_.end(), [&](const auto& one) { return one.asked > proof; });
  std::vector<Inquiry> taken{answered, pending_.end()};
  pending_.erase(answered, pending_.end());
  return taken;
}

std::vector<Inquiries::Inquiry> Inquiries::take_all() {
  forget_probe();
  return std::exchange(pending_, {});
}

bool Inquiries::needs_probe(Instant proof, Instant now, Millis repeat) const {
  if (pending_.empty()) return false;
  return !probed_at_ || proof >= *probed_at_ || now >= *probed_at_ + repeat;
}

}  // namespace acc::rendezvous
