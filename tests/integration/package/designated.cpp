// A user's file that is compiled with -Wall -Wextra -Werror: each struct that the library takes, with one member named.
#include <acc/accelerator.hpp>
#include <acc/checkpoint.hpp>
#include <acc/readers.hpp>
#include <acc/safetensors.hpp>
#include <acc/scheduler.hpp>
#include <acc/training.hpp>
#include <optional>
#include <vector>

void each_struct_of_options(std::vector<float>& w) {
  auto group = acc::ProcessGroup::single(acc::GroupOptions{.name = "mine"});
  group.all_reduce(w, acc::ReduceOp::sum, {.timeout = acc::runtime::Millis{5}});
  group.all_reduce(w, acc::ReduceOp::sum, {.stream = nullptr});

  acc::GradientReducer reducer{group, {acc::Parameter{.name = "w", .value = w}}, {.bucket_bytes = 1024}};
  acc::Sgd sgd{reducer, {.learning_rate = 1, .groups = {{.name = "all", .learning_rate = 2}}}};
  acc::AdamW adamw{reducer, {.learning_rate = 1}};
  acc::OneCycleScheduler scheduler{sgd, {.total_steps = 10}};
  const acc::LossScaler scaler{{.growth_interval = 3}};

  const acc::Dataset<int> dataset{.size = 3};
  const acc::StreamDataset<int> stream{.open = [](std::uint64_t) { return [] { return std::optional<int>{}; }; }};
  acc::DataLoader<int> loader{dataset, {.batch_size = 3}};
  acc::DataLoader<int> of_stream{stream, {.batch_size = 3}};
  (void)acc::read_csv_numbers<float>("x.csv", {.delimiter = ';'});

  acc::runtime::CheckpointState state{.tensors = {{.name = "w", .view = w}}};
  const acc::runtime::CheckpointState texts{.shared = {{"position", "1"}}};
  acc::runtime::Checkpointer checkpoints{group, {.folder = "checkpoints"}};
  checkpoints.save(1, state);
  const std::vector<acc::runtime::NamedTensor> tensors{{.name = "w", .view = acc::TensorView{w}}};
  acc::runtime::save_safetensors("w.safetensors", tensors);

  acc::Accelerator accelerator{{.group = {.timeout = acc::runtime::Millis{3}}, .project = {.project_dir = "run"}}};
  accelerator.prepare_model({{.name = "w", .value = w}}, {.buffers = {{.name = "mean", .value = w}}});
  accelerator.prepare(scheduler, {.step_with_optimizer = false});
  accelerator.load_state({}, {.allow_unused = true});
}
