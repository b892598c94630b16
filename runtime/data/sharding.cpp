#include "runtime/data/batches.hpp"

#include <acc/error.hpp>
#include <acc/sharding.hpp>
#include <algorithm>
#include <string>

namespace acc::runtime {

namespace {

void require_batch_size(std::size_t batch_size) {
  if (batch_size == 0 || batch_size > kMostSamples)
    throw Error{ErrorCode::invalid_argument, "a batch size of " + std::to_string(batch_size)};
}

}  // namespace

StepShape step_shape(const BatchRules& rules, int ranks) {
  require_batch_size(rules.batch_size);
  if (ranks < 1) {
    throw Error{ErrorCode::invalid_argument, "batches for " + std::to_string(ranks) + " processes"};
  }
  const auto n = static_cast<std::size_t>(ranks);
  if (!rules.split_batches) return {rules.batch_size, rules.batch_size * n};
  if (rules.batch_size % n != 0) {
    throw Error{ErrorCode::invalid_argument,
                "split_batches: a batch size of " + std::to_string(rules.batch_size) +
                    " is no multiple of " + std::to_string(n) + " processes"};
  }
  return {rules.batch_size / n, rules.batch_size};
}

BatchSampler::BatchSampler(IndexOrder order, std::size_t batch_size, bool drop_last)
    : order_{std::move(order)}, batch_size_{batch_size}, drop_last_{drop_last} {
  require_batch_size(batch_size);
}

std::size_t BatchSampler::size() const noexcept {
  return batches_of(order_.size(), batch_size_, drop_last_);
}

std::vector<std::size_t> BatchSampler::operator[](std::size_t batch) const {
  const std::size_t begin = batch * batch_size_;
  std::vector<std::size_t> indices(std::min(batch_size_, order_.size() - begin));
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = order_[begin + i];
  return indices;
}

BatchSamplerShard::BatchSamplerShard(IndexOrder order, const BatchRules& rules, int rank, int ranks,
                                     std::size_t from)
    : order_{std::move(order)},
      rules_{rules},
      shape_{step_shape(rules, ranks)},
      rank_{static_cast<std::size_t>(rank)},
      ranks_{static_cast<std::size_t>(ranks)},
      from_{std::min(from, order_.size())} {}

std::size_t BatchSamplerShard::remainder() const noexcept {
  return rules_.drop_last ? 0 : (order_.size() - from_) % shape_.global;
}

std::size_t BatchSamplerShard::size() const noexcept {
  const std::size_t full = (order_.size() - from_) / shape_.global;
  const std::size_t left = remainder();
  if (left == 0) return full;
  return rules_.even_batches || left > rank_ * shape_.batch ? full + 1 : full;
}

std::size_t BatchSamplerShard::announced() const noexcept {
  const std::size_t whole = batches_of(order_.size() - from_, rules_.batch_size, rules_.drop_last);
  if (rules_.split_batches) return whole;
  const std::size_t left = whole % ranks_;
  if (left == 0 || rules_.drop_last) return whole / ranks_;
  return whole / ranks_ + (rules_.even_batches || rank_ < left ? 1 : 0);
}

std::vector<std::size_t> BatchSamplerShard::operator[](std::size_t batch) const {
  const std::size_t samples = order_.size();
  const std::size_t begin = from_ + batch * shape_.global + rank_ * shape_.batch;
  const std::size_t fill = std::min(samples, shape_.global);
  std::vector<std::size_t> indices;
  indices.reserve(shape_.batch);
  for (std::size_t at = begin; at < begin + shape_.batch; ++at) {
    if (at < samples) {
      indices.push_back(order_[at]);
    } else if (rules_.even_batches) {
      indices.push_back(order_[(at - samples) % fill]);
    }
  }
  return indices;
}

std::size_t announced_of_stream(std::size_t samples, const BatchRules& rules, int ranks) {
  require_batch_size(rules.batch_size);
  return batches_of(samples, rules.batch_size * static_cast<std::size_t>(ranks), rules.drop_last) *
         rules.batch_size;
}

std::size_t announced_of_dispatch(std::size_t samples, const BatchRules& rules, int ranks) {
  require_batch_size(rules.batch_size);
  const std::size_t whole = batches_of(samples, rules.batch_size, rules.drop_last);
  return rules.split_batches ? whole
                             : batches_of(whole, static_cast<std::size_t>(ranks), rules.drop_last);
}

}  // namespace acc::runtime
