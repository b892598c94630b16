#include "runtime/weights/estimate.hpp"

#include <catch2/catch.hpp>

namespace acc::weights {
namespace {

const std::vector<std::string> kAll{"float32", "float16", "int8", "int4"};

Tensor tensor(std::string name, std::string type, std::int64_t elements, std::uint64_t bytes) {
  return {std::move(name), std::move(type), {elements}, bytes, {}};
}

}  // namespace

TEST_CASE("sizes and training with Adam are as the original's", "[runtime][weights]") {
  // bert-base-cased of its documentation: 413.18 MB in float32, 84.95 MB its largest layer.
  const std::vector<Tensor> tensors{tensor("embeddings.word.weight", "F32", 22'268'928, 89'075'712),
                                    tensor("encoder.rest.weight", "F32", 1000, 4000)};
  const auto made = estimate(tensors, false, kAll);
  CHECK(bytes_text(made.rows[0].largest_layer) == "84.95 MB");
  CHECK(made.largest_layer == "embeddings.word");
  CHECK(made.parameters == 22'269'928);
  CHECK(made.rows[1].total == made.rows[0].total / 2);
  CHECK(made.rows[2].total == made.rows[0].total / 4);
  CHECK(made.rows[3].total == made.rows[0].total / 8);
  CHECK(made.rows[0].adam == made.rows[0].total * 4);
  CHECK(made.rows[1].adam == made.rows[0].total * 2);  // the float32 weights' optimizer state
  CHECK_FALSE(made.rows[2].adam);
  CHECK_FALSE(made.rows[3].adam);
}

TEST_CASE("weights count as float32, whatever type they are stored in", "[runtime][weights]") {
  const std::vector<Tensor> tensors{
      tensor("a.weight", "BF16", 100, 200), tensor("b.weight", "F8_E4M3", 100, 100),
      tensor("c.weight", "F64", 100, 800), tensor("d.ids", "I64", 10, 80)};
  const auto made = estimate(tensors, false, kAll);
  CHECK(made.float32_bytes == 3 * 400 + 80);  // whole numbers are no weights
  CHECK(made.integer_bytes == 80);
  CHECK(made.stored_bytes == 1180);
}

TEST_CASE("a layer is a module without modules in it, or a block that isn't split",
          "[runtime][weights]") {
  const std::vector<Tensor> tensors{tensor("model.embed.weight", "F32", 30, 120),
                                    tensor("model.layers.0.a.weight", "F32", 20, 80),
                                    tensor("model.layers.0.b.weight", "F32", 20, 80),
                                    tensor("model.layers.1.a.weight", "F32", 5, 20),
                                    tensor("model.scale", "F32", 1, 4),
                                    tensor("top", "F32", 2, 8)};
  CHECK(estimate(tensors, false, kAll).largest_layer == "model.embed");
  const auto blocks = estimate(tensors, true, kAll);
  CHECK(blocks.largest_layer == "model.layers.0");
  CHECK(blocks.rows[0].largest_layer == 160);
}

TEST_CASE("a model without tensors takes nothing", "[runtime][weights]") {
  const auto made = estimate({}, false, kAll);
  CHECK(made.rows.size() == 4);
  CHECK(made.rows[0].total == 0);
  CHECK(made.largest_layer.empty());
}

TEST_CASE("sizes are written as the original writes them", "[runtime][weights]") {
  CHECK(bytes_text(0) == "0 bytes");
  CHECK(bytes_text(1023) == "1023 bytes");
  CHECK(bytes_text(1024) == "1.0 KB");
  CHECK(bytes_text(8.0 * 1024 * 1024 - 100) == "8.0 MB");
  CHECK(bytes_text(7.9 * 1024 * 1024) == "7.9 MB");
  CHECK(bytes_text(1.61 * 1024 * 1024 * 1024) == "1.61 GB");
}

TEST_CASE("the table has the original's lines", "[runtime][weights]") {
  const std::vector<Tensor> tensors{tensor("a.weight", "F32", 256, 1024)};
  const auto made = estimate(tensors, false, std::vector<std::string>{"float32", "int8"});
  CHECK(table_of(made, "Memory Usage for loading `m`") ==
        "┌────────────────────────────────────────────────────┐\n"
        "│            Memory Usage for loading `m`            │\n"
        "├───────┬─────────────┬──────────┬───────────────────┤\n"
        "│ dtype │Largest Layer│Total Size│Training using Adam│\n"
        "├───────┼─────────────┼──────────┼───────────────────┤\n"
        "│float32│   1.0 KB    │  1.0 KB  │      4.0 KB       │\n"
        "│ int8  │  256 bytes  │256 bytes │        N/A        │\n"
        "└───────┴─────────────┴──────────┴───────────────────┘\n");
}

}  // namespace acc::weights
