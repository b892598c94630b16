#include "runtime/selftest/checks.hpp"

#include <acc/loader.hpp>
#include <acc/operations.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace acc::selftest {

using namespace runtime;

namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

struct Case {
  std::size_t samples;
  LoaderOptions options;
};

std::vector<Case> cases(int ranks) {
  std::vector<Case> made;
  for (const std::size_t samples : {1, 5, 17, 64, 101})
    for (const std::size_t batch : {1, 4})
      for (const bool even : {true, false})
        for (const bool drop : {false, true})
          for (const bool split : {false, true}) {
            Case one{samples, {}};
            one.options.batch_size = split ? batch * static_cast<std::size_t>(ranks) : batch;
            one.options.even_batches = even;
            one.options.drop_last = drop;
            one.options.split_batches = split;
            made.push_back(one);
          }
  return made;
}

SampleLoader<std::int64_t> loader_of(const Case& one, const ProcessGroup& group) {
  Dataset<std::int64_t> dataset;
  dataset.size = one.samples;
  dataset.get = [](std::size_t index) { return static_cast<std::int64_t>(index); };
  return {dataset, one.options, group};
}

/// The rule once more: step by step the ranks take the next samples in turn; the epoch goes round
/// to its beginning where a step must be filled.
Batches expected(const Case& one, int rank, int ranks) {
  const auto n = one.samples;
  const auto all = static_cast<std::size_t>(ranks);
  const auto batch = one.options.batch_size / (one.options.split_batches ? all : 1);
  const bool fills = one.options.even_batches && ranks > 1;  // one rank is always even
  Batches batches;
  for (std::size_t step = 0; step * batch * all < n; ++step) {
    const bool full = (step + 1) * batch * all <= n;
    if (!full && one.options.drop_last) break;
    std::vector<std::int64_t> mine;
    for (std::size_t k = 0; k < batch; ++k) {
      const auto at = step * batch * all + static_cast<std::size_t>(rank) * batch + k;
      if (at < n || fills) mine.push_back(static_cast<std::int64_t>(at % n));
    }
    if (!mine.empty()) batches.push_back(std::move(mine));
  }
  return batches;
}

std::string describe(const Case& one) {
  return std::to_string(one.samples) + " samples, batches of " +
         std::to_string(one.options.batch_size) + (one.options.even_batches ? ", even" : "") +
         (one.options.drop_last ? ", drop_last" : "") +
         (one.options.split_batches ? ", split" : "");
}

}  // namespace

std::string check_sharding(ProcessGroup& group) {
  std::size_t checked = 0;
  for (const auto& one : cases(group.size())) {
    auto loader = loader_of(one, group);
    Batches got;
    for (auto& batch : loader) got.push_back(batch);
    if (got != expected(one, group.rank(), group.size()))
      throw Failed{describe(one) + ": other batches than the rules say"};
    ++checked;
  }
  return std::to_string(checked) + " ways to share out samples, each as the rules say";
}

std::string check_metrics(ProcessGroup& group) {
  for (const auto& one : cases(group.size())) {
    if (!one.options.even_batches) continue;  // uneven batches can't be gathered
    auto loader = loader_of(one, group);
    std::vector<std::int64_t> seen;
    for (auto& batch : loader) {
      const auto gathered = gather(group, TensorView{std::span<std::int64_t>{batch}});
      const auto values = gathered.as<std::int64_t>();
      const auto& status = loader.status();
      const auto count =
          samples_for_metrics(values.size(), status.end_of_dataloader, status.remainder);
      seen.insert(seen.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
    }
    const auto global = one.options.batch_size *
                        (one.options.split_batches ? 1 : static_cast<std::size_t>(group.size()));
    const auto wanted = one.options.drop_last ? one.samples / global * global : one.samples;
    std::vector<std::int64_t> all(wanted);
    std::iota(all.begin(), all.end(), 0);
    if (seen != all)
      throw Failed{describe(one) + ": " + std::to_string(seen.size()) + " samples counted, not " +
                   std::to_string(wanted)};
  }
  return "each sample counts once, however the last batch is filled";
}

}  // namespace acc::selftest
