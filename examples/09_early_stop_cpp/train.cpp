// Trains a small net until it no longer gets better on points that it doesn't learn from:
//
//   acc-launch --num_processes 4 ./early_stop --project DIR
//
// Four things that a loop needs once it has several ranks are marked (1) to (4): accumulated
// gradients, clipping, metrics over all ranks, and an end that all of them agree on. The number of
// ranks changes nothing but the time: the same losses, and the end after the same epoch.
#include <acc/accelerator.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "net.hpp"

namespace {

using acc::runtime::DataLoader;
using acc::runtime::Dataset;
using acc::runtime::LoaderOptions;
using example::Point;

struct Settings {
  std::string project = "early_stop";  // the best model goes there
  std::string losses;                  // the losses of each epoch go to this file; empty: nowhere
  std::uint64_t epochs = 200;          // at most
  std::uint64_t patience = 10;         // epochs without a better one
  double seconds = 3600;               // after which no further epoch begins
};

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(what.empty() ? stdout : stderr,
               "%s\nusage: early_stop [--project DIR] [--losses FILE] [--epochs N] [--patience N] "
               "[--seconds X]\n",
               what.c_str());
  std::exit(what.empty() ? 0 : 2);
}

Settings read_settings(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help") usage("");
    if (i + 1 == argc) usage(name + " needs a value");
    const std::string value = argv[i + 1];
    try {
      if (name == "--project")
        s.project = value;
      else if (name == "--losses")
        s.losses = value;
      else if (name == "--epochs")
        s.epochs = std::stoul(value);
      else if (name == "--patience")
        s.patience = std::stoul(value);
      else if (name == "--seconds")
        s.seconds = std::stod(value);
      else
        usage("unknown option " + name);
    } catch (const std::logic_error&) {
      usage(name + " '" + value + "' is not a number");
    }
  }
  return s;
}

class Training {
 public:
  Training(const Settings& settings, acc::Accelerator& accelerator)
      : settings_{settings},
        accelerator_{accelerator},
        reducer_{accelerator.prepare_model(net_.parameters())},
        optimizer_{reducer_, {.learning_rate = 0.02, .weight_decay = 0}},
        to_learn_{accelerator.data_loader(of(learnt_), in_batches(16, true))},
        to_judge_{accelerator.data_loader(of(judged_), in_batches(64, false))} {
    accelerator.prepare(optimizer_);
  }

  void run() {
    std::uint64_t best_epoch = 0;
    double best = std::numeric_limits<double>::infinity();
    for (std::uint64_t epoch = 1; epoch <= settings_.epochs; ++epoch) {
      const double learnt = train_epoch();
      const auto judged = validate();
      report(epoch, learnt, judged);
      if (judged.loss < best - 1e-3) {  // the same bits on every rank, so all save or none
        best = judged.loss;
        best_epoch = epoch;
        (void)accelerator_.save_model(settings_.project);
      }
      // (4) One rank that wants to stop is enough, and each may have a reason of its own: clocks
      // differ. All ranks read the same answer, so that none waits for one that left.
      if (epoch - best_epoch >= settings_.patience || seconds() > settings_.seconds)
        accelerator_.set_trigger();
      if (accelerator_.check_trigger()) break;
    }
    if (best_epoch == 0) return;
    accelerator_.load_model(settings_.project);
    const auto judged = validate();
    accelerator_.print("done: epoch ", best_epoch, " was the best, loss ", judged.loss, ", ",
                       judged.right, " of ", judged.count, " right");
  }

 private:
  struct Metrics {
    double loss = 0;
    std::size_t right = 0;
    std::size_t count = 0;
  };

  static Dataset<const Point*> of(const std::vector<Point>& points) {
    return {points.size(), [&points](std::size_t index) { return &points[index]; }};
  }

  static LoaderOptions in_batches(std::size_t size, bool shuffle) {
    LoaderOptions options;
    options.batch_size = size;
    options.split_batches = true;  // the size is that of all ranks together, however many they are
    options.shuffle = shuffle;
    options.seed = 42;
    return options;
  }

  /// @return the mean loss of all points
  double train_epoch() {
    double loss = 0;
    for (auto& batch : to_learn_) {
      // (1) Only every fourth batch exchanges gradients and moves the weights: the mean of four.
      auto accumulating = accelerator_.accumulate();
      accelerator_.backward([&](double factor) {
        const auto size = static_cast<double>(batch.size());
        for (const Point* point : batch) loss += net_.learn(*point, factor / size);
        for (std::size_t i = reducer_.parameters().size(); i-- > 0;) reducer_.ready(i);
      });
      // (2) The norm is that of the mean over all batches and ranks: once for each step.
      if (accelerator_.sync_gradients())
        clipped_ += accelerator_.clip_grad_norm(optimizer_, 0.3).clipped ? 1 : 0;
      accelerator_.step(optimizer_);
      accelerator_.zero_grad(optimizer_);
    }
    accelerator_.group().all_reduce(std::span{&loss, 1});
    return loss / static_cast<double>(learnt_.size());
  }

  /// (3) Each rank judges its part of a batch, and every rank gets all of it: without the points
  /// that came twice, only to give all ranks equally many.
  Metrics validate() {
    Metrics all;
    for (auto& batch : to_judge_) {
      std::vector<float> mine;  // loss and 1 or 0 of each point
      for (const Point* point : batch) {
        const auto judgement = net_.judge(*point);
        mine.push_back(judgement.loss);
        mine.push_back(judgement.is_right ? 1 : 0);
      }
      const auto points = static_cast<std::int64_t>(batch.size());
      const auto gathered =
          accelerator_.gather_for_metrics(acc::ConstTensorView{mine, {points, 2}});
      const auto values = gathered.as<float>();
      for (std::size_t i = 0; i < values.size(); i += 2) {
        all.loss += values[i];
        all.right += values[i + 1] > 0;
        ++all.count;
      }
    }
    all.loss /= static_cast<double>(all.count);
    return all;
  }

  void report(std::uint64_t epoch, double learnt, const Metrics& judged) {
    accelerator_.print("epoch ", epoch, "  loss ", learnt, "  of unseen points ", judged.loss, ", ",
                       judged.right, " of ", judged.count, " right, ", clipped_, " steps clipped");
    if (settings_.losses.empty()) return;
    accelerator_.on_main_process([&] {
      char line[96];
      std::snprintf(line, sizeof line, "%.9g %.9g\n", learnt, judged.loss);
      if (!(std::ofstream{settings_.losses, epoch == 1 ? std::ios::trunc : std::ios::app}
            << line << std::flush))
        throw std::runtime_error{settings_.losses + ": the losses can't be written there"};
    });
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

  Settings settings_;
  acc::Accelerator& accelerator_;
  std::vector<Point> learnt_ = example::make_points(512, 1);
  std::vector<Point> judged_ = example::make_points(203, 2);  // no number of ranks divides it
  example::Net net_{7};
  acc::GradientReducer& reducer_;
  acc::AdamW optimizer_;
  DataLoader<const Point*> to_learn_, to_judge_;
  std::uint64_t clipped_ = 0;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace

int main(int argc, char** argv) {
  const auto settings = read_settings(argc, argv);
  try {
    acc::AcceleratorOptions options;
    options.gradient_accumulation_steps = 4;
    options.group.backend = acc::BackendKind::cpu;
    acc::Accelerator accelerator{options};
    Training{settings, accelerator}.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "early_stop: %s\n", error.what());
    return 1;
  }
}
