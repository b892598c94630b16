#include "tests/golden/sharding/row.hpp"

#include <nlohmann/json.hpp>

#include <acc/error.hpp>
#include <acc/gradient_state.hpp>
#include <acc/loader.hpp>
#include <acc/operations.hpp>
#include <acc/split.hpp>
#include <numeric>
#include <variant>

/// The rows of all files but collectives.json.
namespace acc::golden {

using namespace acc::runtime;  // NOLINT: its tests

namespace {

using Index = std::int64_t;
using Loader = SampleLoader<Index>;

/// Compares what `ours` makes, or its refusal with a recorded error.
Differences against(const json& row, const std::function<void(Differences&)>& ours) {
  Differences differences;
  const bool refused = row.contains("error");
  try {
    ours(differences);
    if (refused) differences = {"ours is no error"};
  } catch (const Error& error) {
    if (!refused || error.code() != ErrorCode::invalid_argument) differences = {error.what()};
  }
  return differences;
}

int ranks_of(const Inputs& in) {
  const auto ranks = in.positive("num_processes");
  if (ranks > 64) throw Malformed{"'num_processes' is above 64"};
  return static_cast<int>(ranks);
}

Stream<Index> count_to(std::size_t size) {
  return [next = Index{0}, size]() mutable -> std::optional<Index> {
    if (next == static_cast<Index>(size)) return std::nullopt;
    return next++;
  };
}

/// A dataset whose sample i is i.
Loader loader_of(std::size_t size, bool stream, LoaderOptions options, const ProcessGroup& group) {
  if (stream) {
    return Loader{StreamDataset<Index>{[size](std::uint64_t) { return count_to(size); }, size},
                  std::move(options), group};
  }
  return Loader{Dataset<Index>{size, [](std::size_t index) { return static_cast<Index>(index); }},
                std::move(options), group};
}

}  // namespace

Differences check_batch_sampler_shard(const Inputs& in, const json& row) {
  const auto order = IndexOrder::sequential(in.number("dataset length"));
  const BatchRules rules{in.positive("batch_size"), in.flag("drop_last"), in.flag("split_batches"),
                         in.flag("even_batches")};
  const int ranks = ranks_of(in);
  return against(row, [&](Differences& differences) {
    json out = json::array();
    json lengths = json::array();
    for (int rank = 0; rank < ranks; ++rank) {
      const BatchSamplerShard shard{order, rules, rank, ranks};
      json batches = json::array();
      for (std::size_t i = 0; i < shard.size(); ++i) batches.push_back(shard[i]);
      out.push_back(std::move(batches));
      lengths.push_back(shard.announced());
    }
    if (row.contains("error")) return;
    compare("out", field(row, "out"), out, differences);
    compare("len", field(row, "len"), lengths, differences);
  });
}

Differences check_iterable_dataset_shard(const Inputs& in, const json& row) {
  const auto samples = in.number("dataset length");
  const BatchRules rules{in.positive("batch_size"), in.flag("drop_last"), in.flag("split_batches")};
  const int ranks = ranks_of(in);
  return against(row, [&](Differences& differences) {
    json out = json::array();
    json lengths = json::array();
    for (int rank = 0; rank < ranks; ++rank) {
      IterableDatasetShard<Index> shard{count_to(samples), rules, rank, ranks};
      json mine = json::array();
      while (const auto sample = shard.next()) mine.push_back(*sample);
      out.push_back(std::move(mine));
      lengths.push_back(announced_of_stream(samples, rules, ranks));
    }
    if (row.contains("error")) return;
    compare("out", field(row, "out"), out, differences);
    compare("len", field(row, "len"), lengths, differences);
  });
}

namespace {

/// What one rank sees of an epoch.
json epoch_with_metrics(Loader& loader, ProcessGroup& group) {
  json seen = {{"batches", json::array()},
               {"metrics", json::array()},
               {"end_of_dataloader", json::array()},
               {"remainder", json::array()}};
  for (auto& batch : loader) {
    const auto& status = loader.status();
    auto all = gather(group, TensorView{std::span{batch}});
    const auto count = samples_for_metrics(all.count(), status.end_of_dataloader, status.remainder);
    auto kept = first_of(all.view(), count);
    const auto metrics = kept.as<Index>();
    seen["batches"].push_back(batch);
    seen["metrics"].push_back(std::vector<Index>{metrics.begin(), metrics.end()});
    seen["end_of_dataloader"].push_back(status.end_of_dataloader ? 1 : 0);
    seen["remainder"].push_back(status.remainder);
  }
  seen["len"] = loader.length().value();
  return seen;
}

}  // namespace

Differences check_gather_for_metrics(const Inputs& in, const json& row) {
  const auto samples = in.number("dataset length");
  const bool stream = in.flag("iterable dataset");
  LoaderOptions options;
  options.batch_size = in.positive("batch_size");
  options.drop_last = in.flag("drop_last");
  options.split_batches = in.flag("split_batches");
  options.even_batches = in.flag("even_batches");
  options.dispatch_batches = in.flag("dispatch_batches");

  const auto outcomes = on_ranks(ranks_of(in), [&](ProcessGroup& group) {
    auto loader = loader_of(samples, stream, options, group);
    return epoch_with_metrics(loader, group);
  });
  Differences differences;
  const bool crashed = row.contains("error");
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto& ours = outcomes[rank];
    const std::string of_rank = "rank " + std::to_string(rank) + ": ";
    if (!ours.error.empty()) {
      if (!crashed) differences.push_back(of_rank + ours.error);
      continue;
    }
    if (crashed) {  // the sane result is no batch at all
      compare(of_rank + "batches", json::array(), ours.value["batches"], differences);
    } else {
      const auto& batches = field(row, "batches");
      if (!batches.is_array() || batches.size() != outcomes.size())
        throw Malformed{"'batches' has not one element a process"};
      compare(of_rank + "batches", batches[rank], ours.value["batches"], differences);
      for (const auto* what : {"metrics", "end_of_dataloader", "remainder"})
        compare(of_rank + what, field(row, what), ours.value[what], differences);
    }
    compare(of_rank + "len", field(row, "len"), ours.value["len"], differences);
  }
  return differences;
}

Differences check_skip_first_batches(const Inputs& in, const json& row) {
  const auto samples = in.number("dataset length");
  const auto skipped = in.number("batches to skip");
  LoaderOptions options;
  options.batch_size = in.positive("batch_size");
  const auto& recorded = field(row, "batches");
  const auto outcomes = on_ranks(ranks_of(in), [&](ProcessGroup& group) {
    auto loader = loader_of(samples, false, options, group).skip_first_batches(skipped);
    json batches = json::array();
    for (auto& batch : loader) batches.push_back(batch);
    json length;
    try {
      length = loader.length().value();
    } catch (const Error& more_than_there_are) {
      if (more_than_there_are.code() != ErrorCode::invalid_argument) throw;
      length = "ValueError";
    }
    return json{{"batches", std::move(batches)}, {"len", std::move(length)}};
  });
  if (!recorded.is_array() || recorded.size() != outcomes.size())
    throw Malformed{"'batches' has not one element a process"};
  Differences differences;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto& ours = outcomes[rank];
    const std::string of_rank = "rank " + std::to_string(rank) + ": ";
    if (!ours.error.empty()) {
      differences.push_back(of_rank + ours.error);
      continue;
    }
    compare(of_rank + "batches", recorded[rank], ours.value["batches"], differences);
    compare(of_rank + "len", field(row, "len"), ours.value["len"], differences);
  }
  return differences;
}

Differences check_split_between_processes(const Inputs& in, const json& row) {
  const int ranks = ranks_of(in);
  const bool padding = in.flag("apply_padding");
  const auto kind = in.word("kind");
  std::vector<Index> numbers(in.number("length"));
  std::iota(numbers.begin(), numbers.end(), Index{0});
  std::vector<std::string> words;
  for (const auto number : numbers) words.push_back(std::to_string(number));
  const auto tensor = HostTensor::of<Index>(numbers, {static_cast<std::int64_t>(numbers.size())});
  using Column = std::variant<std::vector<Index>, std::vector<std::string>>;
  const std::map<std::string, Column> table{{"a", numbers}, {"b", words}};

  json out = json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    if (kind == "list") {
      out.push_back(split_between_processes(numbers, rank, ranks, padding));
    } else if (kind == "tensor") {
      const auto mine = split_between_processes(tensor, rank, ranks, padding);
      const auto values = mine.as<Index>();
      out.push_back(std::vector<Index>{values.begin(), values.end()});
    } else if (kind == "dict") {
      json mine = json::object();
      for (const auto& [name, column] : split_between_processes(table, rank, ranks, padding))
        std::visit([&](const auto& values) { mine[name] = values; }, column);
      out.push_back(std::move(mine));
    } else {
      throw Malformed{"a kind that is not known: '" + kind + "'"};
    }
  }
  Differences differences;
  compare("out", field(row, "out"), out, differences);
  return differences;
}

Differences check_accumulate(const Inputs& in, const json& row) {
  const auto state = std::make_shared<GradientState>(in.positive("gradient accumulation steps"),
                                                     in.flag("sync_with_dataloader"));
  LoaderOptions options;
  options.gradient_state = state;
  auto loader = loader_of(in.number("batches per epoch"), false, options, {});
  json flags = json::array();
  for (int epoch = 0; epoch < 2; ++epoch) {
    for ([[maybe_unused]] auto& batch : loader) flags.push_back(state->next_batch() ? 1 : 0);
  }
  Differences differences;
  compare("sync_gradients", field(row, "sync_gradients"), flags, differences);
  return differences;
}

}  // namespace acc::golden
