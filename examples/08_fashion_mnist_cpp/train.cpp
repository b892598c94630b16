// Trains the convolutional net of net.hpp on Fashion-MNIST with any number of ranks, on the CPU or
// each on its GPU:
//
//   acc-launch --num_processes 2 --max_restarts 3 ./fashion_mnist --project DIR
//
// What makes it distributed is marked (1) to (6); the rest is the loop one would write for a single
// process. Started without a launcher it is one. Where the model computes is its own affair
// (model.hpp): the loop is the same.
#include <acc/accelerator.hpp>
#include <acc/agent.hpp>
#include <acc/cuda.hpp>
#include <acc/readers.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.hpp"

namespace {

using namespace acc::runtime;

struct Settings {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string project = "fashion_mnist";  // checkpoints go to its folder of that name
  std::string device = "auto";            // cuda where every rank has a GPU, else cpu
  std::string losses;  // the loss of every step goes to this file; empty: nowhere
  unsigned epochs = 3;
  std::size_t batch_size = 64;  // of all ranks together
  std::size_t images = 60000;
  double learning_rate = 0.05;
  std::uint64_t save_every = 200;   // steps; 0: only after each epoch
  std::uint64_t crash_at_step = 0;  // in the first attempt; 0: never; counted from 1
  std::uint64_t crash_every = 0;    // attempt k crashes after step (k + 1) times this
  int crash_rank = 1;
};

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(
      what.empty() ? stdout : stderr,
      "%s\nusage: fashion_mnist [--data DIR] [--project DIR] [--epochs N] [--batch-size N] "
      "[--images N]\n"
      "  [--lr X] [--save-every STEPS] [--crash-at-step N | --crash-every N] [--crash-rank R]\n"
      "  [--device auto|cpu|cuda] [--losses FILE]\n",
      what.c_str());
  std::exit(what.empty() ? 0 : 2);
}

/// @throws std::invalid_argument, std::out_of_range
std::uint64_t whole_number(const std::string& text) {
  if (text.find_first_not_of("0123456789") != std::string::npos)
    throw std::invalid_argument{text};  // stoull would take "-1" and "7 days"
  return std::stoull(text);
}

Settings read_settings(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help") usage("");
    if (i + 1 == argc) usage(name + " needs a value");
    const std::string value = argv[i + 1];
    try {
      if (name == "--data")
        s.data = value;
      else if (name == "--project")
        s.project = value;
      else if (name == "--device")
        s.device = value;
      else if (name == "--losses")
        s.losses = value;
      else if (name == "--epochs")
        s.epochs = static_cast<unsigned>(whole_number(value));
      else if (name == "--batch-size")
        s.batch_size = whole_number(value);
      else if (name == "--images")
        s.images = whole_number(value);
      else if (name == "--lr")
        s.learning_rate = std::stod(value);
      else if (name == "--save-every")
        s.save_every = whole_number(value);
      else if (name == "--crash-at-step")
        s.crash_at_step = whole_number(value);
      else if (name == "--crash-every")
        s.crash_every = whole_number(value);
      else if (name == "--crash-rank")
        s.crash_rank = std::stoi(value);
      else
        usage("unknown option " + name);
    } catch (const std::logic_error&) {
      usage(name + " '" + value + "' is not a number that it can have");
    }
  }
  if (s.device != "auto" && s.device != "cpu" && s.device != "cuda")
    usage("--device is auto, cpu or cuda");
  return s;
}

std::vector<example::Image> read_images(const std::string& folder, const std::string& part,
                                        std::size_t limit) {
  const auto pixels = read_idx(folder + "/" + part + "-images-idx3-ubyte.gz");
  const auto labels = read_idx(folder + "/" + part + "-labels-idx1-ubyte.gz");
  if (pixels.count() != labels.count() * example::kPixels)
    throw std::runtime_error{folder + ": the images and labels of '" + part + "' don't match"};
  std::vector<example::Image> images(std::min(limit, labels.count()));
  for (std::size_t i = 0; i < images.size(); ++i) {
    std::copy_n(pixels.as<std::uint8_t>().data() + i * example::kPixels, example::kPixels,
                images[i].pixels.data());
    images[i].label = labels.as<std::uint8_t>()[i];
  }
  return images;
}

class Training {
 public:
  Training(const Settings& settings, acc::Accelerator& accelerator)
      : settings_{settings},
        accelerator_{accelerator},
        images_{read_images(settings.data, "train", settings.images)},
        test_{read_images(settings.data, "t10k", 10000)},
        model_{example::make_model(accelerator.device(), 7)},
        reducer_{accelerator.prepare_model(
            model_->parameters())},  // (2) gradients are averaged over the ranks
        optimizer_{model_->make_sgd(reducer_, settings.learning_rate, 0.9)},
        loader_{accelerator.data_loader(
            dataset(), loader_options())} {  // (3) each rank gets its share of a batch
    accelerator.prepare(
        *optimizer_);  // (4) saved and loaded by all ranks together, with the place in the data
    accelerator.prepare(loader_);
    accelerator.register_for_checkpointing(
        "step", [this] { return std::to_string(step_); },
        [this](std::string_view text) { step_ = std::stoull(std::string{text}); });
  }

  void run() {
    if (const auto device = accelerator_.device(); device.kind == Device::Kind::cuda)
      accelerator_.print("computing on ", acc::cuda::device_facts(device.index).name);
    resume();
    while (loader_.epoch() < settings_.epochs) train_epoch();
    accelerator_.print("done: test accuracy ", accuracy(), " with ", accelerator_.num_processes(),
                       " ranks in attempt ", attempt());
  }

 private:
  using Pointer = const example::Image*;

  Dataset<Pointer> dataset() {
    return {images_.size(), [this](std::size_t index) { return &images_[index]; }};
  }

  LoaderOptions loader_options() const {
    LoaderOptions options;
    options.batch_size = settings_.batch_size;
    options.split_batches =
        true;  // the batch size is that of all ranks together, however many they are
    options.shuffle = true;
    options.seed = 42;
    options.drop_last = true;
    return options;
  }

  void resume() {
    const auto folder = accelerator_.load_state();
    if (folder.empty())
      accelerator_.print("attempt ", attempt(), ": ", accelerator_.num_processes(),
                         " ranks, starting from scratch");
    else
      accelerator_.print("attempt ", attempt(), ": ", accelerator_.num_processes(),
                         " ranks, going on after step ", step_, " from ",
                         folder.filename().string());
  }

  void train_epoch() {
    const auto number = loader_.epoch() + 1;
    double loss = 0;
    std::uint64_t steps = 0;
    for (auto& batch : loader_) {
      loss += train_step(batch);
      ++steps;
      if (settings_.save_every > 0 && step_ % settings_.save_every == 0) save();
    }
    if (steps == 0) return;  // the checkpoint was that of an epoch's last batch
    save();
    const double tested = accuracy();
    accelerator_.print("epoch ", number, "/", settings_.epochs, "  loss ",
                       loss / static_cast<double>(steps), "  test accuracy ", tested, "  ",
                       seconds(), " s");
  }

  double train_step(const std::vector<Pointer>& batch) {
    std::vector<example::Image> images;
    for (const auto* image : batch) images.push_back(*image);
    double loss = 0;
    reducer_.zero_gradients();
    accelerator_.backward(
        [&](double factor) {  // (5) returns when every gradient is the mean over all ranks
          loss = model_->learn(images, factor);
          for (std::size_t i = reducer_.parameters().size(); i-- > 0;) reducer_.ready(i);
        });
    optimizer_->set_learning_rate(settings_.learning_rate * (1 - progress()));
    accelerator_.step(*optimizer_);
    ++step_;
    accelerator_.group().all_reduce(&loss, &loss, 1, DType::f64, ReduceOp::avg);
    note(loss);
    acc::agent::heartbeat(step_);
    crash_on_purpose();
    return loss;
  }

  [[nodiscard]] double progress() const {
    const auto steps = images_.size() / settings_.batch_size * settings_.epochs;
    return static_cast<double>(step_) / static_cast<double>(steps);
  }

  void save() {
    accelerator_.save_state();
    acc::agent::checkpoint(step_);
  }

  /// Each rank tests its share; the counts meet in one sum (6).
  double accuracy() {
    const auto share =
        split_between(test_.size(), accelerator_.process_index(), accelerator_.num_processes());
    std::uint64_t right =
        model_->recognised(std::span{test_}.subspan(share.first, share.last - share.first));
    accelerator_.group().all_reduce(std::span{&right, 1});
    return static_cast<double>(right) / static_cast<double>(test_.size());
  }

  void note(double loss) {
    if (settings_.losses.empty()) return;
    accelerator_.on_main_process([&] {
      char line[64];
      std::snprintf(line, sizeof line, "%llu %.17g\n", static_cast<unsigned long long>(step_),
                    loss);
      if (!(std::ofstream{settings_.losses, std::ios::app} << line << std::flush))
        throw std::runtime_error{settings_.losses + ": the losses can't be written there"};
    });
  }

  /// Plays the out-of-memory killer.
  void crash_on_purpose() {
    const bool first = step_ == settings_.crash_at_step && attempt() == "0";
    const bool again =
        settings_.crash_every > 0 && step_ == settings_.crash_every * (std::stoull(attempt()) + 1);
    if (!first && !again) return;
    accelerator_.on_process(settings_.crash_rank, [&] {
      std::printf("rank %d: crashing on purpose after step %llu\n", settings_.crash_rank,
                  static_cast<unsigned long long>(step_));
      std::fflush(stdout);
      std::raise(SIGKILL);
    });
  }

  static std::string attempt() {
    const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
    return count != nullptr ? count : "0";
  }

  [[nodiscard]] double seconds() const {
    const auto taken = std::chrono::steady_clock::now() - started_;
    return static_cast<double>(
               std::chrono::duration_cast<std::chrono::milliseconds>(taken).count() / 100) /
           10;
  }

  Settings settings_;
  acc::Accelerator& accelerator_;
  std::vector<example::Image> images_, test_;
  std::unique_ptr<example::Model> model_;
  GradientReducer& reducer_;
  std::unique_ptr<Optimizer> optimizer_;
  DataLoader<Pointer> loader_;
  std::uint64_t step_ = 0;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

acc::AcceleratorOptions accelerator_options(const Settings& settings) {
  acc::AcceleratorOptions options;
  options.project.project_dir = settings.project;
  options.project.automatic_checkpoint_naming = true;
  options.project.total_limit = 2;
  options.group.backend = example::backend_for(settings.device);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const auto settings = read_settings(argc, argv);
  try {
    acc::Accelerator accelerator{accelerator_options(settings)};  // (1) all ranks meet
    Training{settings, accelerator}.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fashion_mnist: %s\n", error.what());
    return 1;
  }
}
