// saves_at_end FOLDER: a trainer that lives as long as the program and saves when it is destroyed,
// after main. Prints the step that a run before this one had saved.
#include <acc/accelerator.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <vector>

namespace {

acc::AcceleratorOptions options(const char* folder) {
  acc::AcceleratorOptions options;
  options.project.project_dir = folder;
  options.project.automatic_checkpoint_naming = true;
  return options;
}

class Trainer {
 public:
  explicit Trainer(const char* folder)
      : accelerator_{options(folder)},
        model_{accelerator_.prepare_model({{"weights", acc::TensorView{weights_}}})},
        optimizer_{model_, {}} {
    accelerator_.prepare(optimizer_);
    accelerator_.load_state();
  }
  ~Trainer() {
    try {
      accelerator_.save_state();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "not saved: %s\n", error.what());
    }
  }
  void train() {
    for (float& weight : weights_) weight += 1;
  }
  [[nodiscard]] float weight() const { return weights_.back(); }

 private:
  std::vector<float> weights_ = std::vector<float>(100'000);
  acc::Accelerator accelerator_;
  acc::GradientReducer& model_;
  acc::AdamW optimizer_;
};

std::optional<Trainer> trainer;

}  // namespace

int main(int, char** words) {
  trainer.emplace(words[1]);
  std::printf("begins with %.0f\n", static_cast<double>(trainer->weight()));
  trainer->train();
}
