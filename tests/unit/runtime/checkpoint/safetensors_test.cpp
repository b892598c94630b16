#include "runtime/checkpoint/safetensors_format.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include <acc/checkpoint.hpp>
#include <acc/safetensors.hpp>
#include <algorithm>
#include <limits>
#include <random>
#include <sstream>

using namespace acc::testing;
using acc::runtime::Error;
using nlohmann::json;

namespace {

std::string length_of(std::uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(length >> (8 * i) & 0xff);
  return text;
}
/// A file of this header and so many bytes of data.
std::string file_of(std::string_view header, std::size_t data) {
  return length_of(header.size()) + std::string{header} + std::string(data, 'x');
}

/// What opening a file of these bytes is refused with; empty: it is opened.
std::string refusal(std::string_view bytes) {
  const TemporaryFolder folder;
  put_contents(folder / "a.safetensors", bytes);
  try {
    const SafetensorsFile opened{folder / "a.safetensors"};
    return {};
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::corrupt);
    CHECK_THAT(error.what(), Catch::Contains((folder / "a.safetensors").native()));
    return error.what();
  }
}

/// As the reader that knows nothing but the rules of the format tells it.
json as_python_reads(const std::vector<fs::path>& files) {
  std::string command = ACC_PYTHON " " ACC_SAFETENSORS_READER;
  for (const auto& file : files) command += " '" + file.native() + "'";
  int status = 0;
  const auto text = first_line_of_command(command + " 2>&1", status);
  INFO(text);
  REQUIRE(status == 0);
  return json::parse(text);
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const auto one : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<std::size_t>(one) >> 4];
    text += kDigits[std::to_integer<std::size_t>(one) & 15];
  }
  return text;
}

constexpr DType kAll[] = {DType::i8,  DType::u8,  DType::i32, DType::u32, DType::i64,
                          DType::u64, DType::f16, DType::f32, DType::f64, DType::bf16};

HostTensor random_tensor(DType dtype, Shape shape, std::mt19937& random) {
  HostTensor tensor{dtype, std::move(shape)};
  for (auto& one : tensor.bytes()) one = static_cast<std::byte>(random() & 0xff);
  return tensor;
}

}  // namespace

TEST_CASE("every type and shape is read as it was written", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  std::mt19937 random{7};
  std::vector<HostTensor> tensors;
  std::vector<NamedTensor> named;
  for (const auto dtype : kAll) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3, 5}, Shape{2, 0, 4}}) {
      tensors.push_back(random_tensor(dtype, shape, random));
    }
  }
  for (auto& tensor : tensors) {
    named.push_back({"t" + std::to_string(named.size()) + "." +
                         std::string{to_string(tensor.dtype())} + to_string(tensor.shape()),
                     tensor.view()});
  }
  const TensorMetadata metadata{{"format", "pt"}, {"quote\"d", "ü\n\t€"}};
  const auto path = folder / "all.safetensors";
  save_safetensors(path, named, metadata);

  const SafetensorsFile file{path};
  CHECK(file.metadata() == metadata);
  REQUIRE(file.entries().size() == named.size());
  for (std::size_t i = 0; i < named.size(); ++i) CHECK(file.read(named[i].name) == tensors[i]);

  const auto python = as_python_reads({path})[path.native()];
  CHECK(python["metadata"] == json(metadata));
  REQUIRE(python["tensors"].size() == named.size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    const auto& one = python["tensors"][named[i].name];
    CHECK(one["shape"] == json(tensors[i].shape()));
    CHECK(one["hex"] == hex_of(tensors[i].bytes()));
    CHECK(one["dtype"] == std::string{acc::runtime::safetensors::type_of(tensors[i].dtype())});
  }
}

TEST_CASE("the bytes of a file are those of the format", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  std::vector<float> b{1.0F};
  std::vector<std::uint8_t> a{7, 8, 9};
  save_safetensors(folder / "x", {{{"a", std::span{a}}, {"b", std::span{b}}}}, {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  const auto padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(contents_of(folder / "x") ==
        length_of(padded.size()) + padded + std::string{"\0\0\x80\x3f\7\x8\x9", 7});
}

TEST_CASE("no tensors are a file too", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "none", {});
  CHECK(contents_of(folder / "none") == length_of(8) + "{}      ");
  CHECK(SafetensorsFile{folder / "none"}.entries().empty());
}

TEST_CASE("random sets of tensors go there and back", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  std::mt19937 random{20};
  std::vector<fs::path> paths;
  std::vector<std::vector<HostTensor>> sets;
  for (int round = 0; round < 40; ++round) {
    auto& set = sets.emplace_back();
    std::vector<NamedTensor> named;
    for (auto count = random() % 20; count > 0; --count) {
      Shape shape;
      for (auto dims = random() % 4; dims > 0; --dims) shape.push_back(random() % 9);
      set.push_back(random_tensor(kAll[random() % std::size(kAll)], shape, random));
    }
    for (auto& tensor : set) named.push_back({std::to_string(named.size()), tensor.view()});
    std::ranges::shuffle(named, random);
    paths.push_back(folder / std::to_string(round));
    save_safetensors(paths.back(), named);
  }
  const auto python = as_python_reads(paths);
  for (std::size_t round = 0; round < sets.size(); ++round) {
    const SafetensorsFile file{paths[round]};
    for (std::size_t i = 0; i < sets[round].size(); ++i) {
      CHECK(file.read(std::to_string(i)) == sets[round][i]);
      CHECK(python[paths[round].native()]["tensors"][std::to_string(i)]["hex"] ==
            hex_of(sets[round][i].bytes()));
    }
  }
}

TEST_CASE("a part of a tensor can be read", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> values{0, 1, 2, 3, 4, 5};
  save_safetensors(folder / "x", {{{"a", std::span{values}}}});
  const SafetensorsFile file{folder / "x"};
  const auto* entry = file.find("a");
  REQUIRE(entry != nullptr);
  std::vector<std::byte> some(3);
  file.read_bytes(*entry, 2, some);
  CHECK(some == std::vector{std::byte{2}, std::byte{3}, std::byte{4}});
  CHECK_THROWS_WITH(file.read_bytes(*entry, 4, some), Catch::Contains("has 6 bytes"));
  CHECK_THROWS_WITH(file.read_bytes(*entry, ~0ULL, some), Catch::Contains("has 6 bytes"));
  CHECK_THROWS_WITH(file.read("b"), Catch::Contains("'b' isn't in it"));
  std::vector<float> wrong(6);
  CHECK_THROWS_WITH(file.read("a", std::span{wrong}), Catch::Contains("is U8 [6], not F32 [6]"));
}

TEST_CASE("types that aren't ours are told, and their bytes read", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  put_contents(folder / "x",
               file_of(R"({"a":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"F4","shape":[6],"data_offsets":[4,7]}})",
                       7));
  const SafetensorsFile file{folder / "x"};
  CHECK(file.find("a")->type == "F8_E4M3");
  CHECK(file.find("a")->dtype == std::nullopt);
  CHECK(file.find("b")->bytes == 3);
  CHECK_THROWS_WITH(file.read("a"), Catch::Contains("F8_E4M3"));
  std::vector<std::byte> bytes(4);
  file.read_bytes(*file.find("a"), 0, bytes);
  CHECK(bytes[0] == std::byte{'x'});
}

TEST_CASE("what can't be written is refused, and the old file stays", "[runtime][safetensors]") {
  const TemporaryFolder folder;
  std::vector<float> a{1, 2};
  save_safetensors(folder / "x", {{{"a", std::span{a}}}});
  const auto before = contents_of(folder / "x");
  const auto refused = [&](const std::vector<NamedTensor>& tensors, const TensorMetadata& metadata,
                           const std::string& words) {
    try {
      save_safetensors(folder / "x", tensors, metadata);
      FAIL("it was written");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      CHECK_THAT(error.what(), Catch::Contains(words));
    }
    CHECK(contents_of(folder / "x") == before);
    CHECK(names_in(folder.path()).size() == 1);
  };
  const NamedTensor good{"a", std::span{a}};
  refused({good, good}, {}, "'a' is there twice");
  refused({{"__metadata__", std::span{a}}}, {}, "keeps for itself");
  refused({{"\xff", std::span{a}}}, {}, "UTF-8");
  refused({good}, {{"a", "\xc3"}}, "UTF-8");
  refused({{"a", TensorView{nullptr, DType::f32, {2}}}}, {}, "no memory");
  refused({{"a", TensorView{a.data(), DType::f32, {-2}}}}, {}, "[-2]");
  refused({{"a", TensorView{a.data(), DType::f32, {2}, {Device::Kind::cuda, 0}}}}, {}, "cuda:0");
}

TEST_CASE("each rule of the format is held", "[runtime][safetensors]") {
  const auto good = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  CHECK(refusal(file_of(good, 2)).empty());
  CHECK(refusal(file_of(std::string{good} + "   ", 2)).empty());
  // Fields that a later version may add.
  CHECK(refusal(file_of(R"({"a":{"new":{"b":[1,{"c":null}],"d":-1.5},"dtype":"U8","x":[],)"
                        R"("shape":[2],"data_offsets":[0,2],"y":true}})",
                        2))
            .empty());
  struct Case {
    std::string bytes, words;
  };
  const auto tensor = [](std::string_view body, std::size_t data) {
    return file_of("{\"a\":{" + std::string{body} + "}}", data);
  };
  const std::vector<Case> cases{
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {length_of(3) + "{}", "goes beyond the end"},
      {length_of(100'000'001) + "{}", "more than 100000000"},
      {length_of(~0ULL) + "{}", "more than 100000000"},
      {length_of(0), "doesn't begin with '{'"},
      {file_of(" {}", 0), "doesn't begin with '{'"},
      {file_of("[]", 0), "doesn't begin with '{'"},
      {file_of("{", 0), "no JSON"},
      {file_of("{}x", 0), "no JSON"},
      {file_of(std::string{"{}\0", 3}, 0), "no JSON"},
      {file_of("{\"\xff\":1}", 0), "no JSON"},
      {file_of("{}", 1), "1 bytes at its end belong to no tensor, from byte 10"},
      {file_of(good, 1), "cut short"},
      {file_of(good, 3), "belong to no tensor"},
      {file_of(R"({"a":1})", 0), "tensor 'a': is a number"},
      {file_of(R"({"a":[]})", 0), "tensor 'a': is a list"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "'a' is a number, not a string"},
      {file_of(R"({"__metadata__":{"a":{}}})", 0), "'a' is an object, not a string"},
      {file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "'a' is there twice"},
      {file_of(R"({"__metadata__":"x"})", 0), "is a string"},
      {tensor(R"("dtype":"U8","shape":[2])", 2), "no two data_offsets"},
      {tensor(R"("dtype":"U8","data_offsets":[0,2])", 2), "no shape"},
      {tensor(R"("shape":[2],"data_offsets":[0,2])", 2), "no dtype"},
      {tensor(R"("dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2])", 2),
       "'dtype' is there twice"},
      {tensor(R"("dtype":"u8","shape":[2],"data_offsets":[0,2])", 2), "unknown dtype 'u8'"},
      {tensor(R"("dtype":8,"shape":[2],"data_offsets":[0,2])", 2), "dtype is a number"},
      {tensor(R"("dtype":"U8","shape":2,"data_offsets":[0,2])", 2), "shape is a number"},
      {tensor(R"("dtype":"U8","shape":[-2],"data_offsets":[0,2])", 2),
       "shape holds a negative number"},
      {tensor(R"("dtype":"U8","shape":[2.0],"data_offsets":[0,2])", 2), "the number 2.0"},
      {tensor(R"("dtype":"U8","shape":["2"],"data_offsets":[0,2])", 2), "shape holds a string"},
      {tensor(R"("dtype":"U8","shape":[[2]],"data_offsets":[0,2])", 2), "shape holds a list"},
      {tensor(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,2])", 2),
       "is too large"},
      {tensor(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,2])", 2),
       "shape holds the number"},
      {tensor(R"("dtype":"U8","shape":[4294967296,4294967296,2],"data_offsets":[0,2])", 2),
       "more than 2^64"},
      {tensor(R"("dtype":"U8","shape":[3],"data_offsets":[0,2])", 2), "takes 3"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,2])", 2), "takes 8"},
      {tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2), "ends within a byte"},
      {tensor(R"("dtype":"U8","shape":[2],"data_offsets":[2,0])", 2), "end before they begin"},
      {tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0])", 2), "no two data_offsets"},
      {tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,2,4])", 2), "more than two"},
      {tensor(R"("dtype":"U8","shape":[2],"data_offsets":[1,3])", 3), "the one before ends at 0"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
               4),
       "tensor 'a': is there twice"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
               3),
       "tensor 'b' begins at byte 1 of the data, within the one before"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
               5),
       "tensor 'b' begins at byte 3 of the data, but the one before ends at 2"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
               2),
       "within the one before"},
      {tensor(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,2])", 2),
       "is too large"},
      {tensor(R"("dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,)"
              R"(18446744073709551615])",
              0),
       "the one before ends at 0"},
  };
  for (const auto& one : cases) {
    INFO(one.bytes.substr(std::min<std::size_t>(8, one.bytes.size())));
    CHECK_THAT(refusal(one.bytes), Catch::Contains(one.words));
  }
}

TEST_CASE("a mistake in the header is told with its place", "[runtime][safetensors]") {
  const std::string header = R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})";
  const auto words = refusal(file_of(header, 2));
  const auto at = words.find("before byte ");
  REQUIRE(at != std::string::npos);
  const auto place = std::stoul(words.substr(at + 12));
  CHECK(place > 8 + header.find("-2"));
  CHECK(place <= 8 + header.find("-2") + 4);
}

TEST_CASE("a deeply nested header costs nothing", "[runtime][safetensors]") {
  const std::string deep(1'000'000, '[');
  CHECK_FALSE(refusal(file_of(R"({"a":{"other":)" + deep, 0)).empty());
  CHECK_FALSE(refusal(file_of("{\"a\":" + deep, 0)).empty());
}

TEST_CASE("any damage to a header is an error or another header, never a crash",
          "[runtime][safetensors]") {
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  std::mt19937 random{3};
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto damaged = header;
    for (auto count = 1 + random() % 3; count > 0; --count) {
      const auto at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, 1 + random() % 5);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 9));
      }
      if (damaged.empty()) damaged = "{";
    }
    try {
      const auto read =
          acc::runtime::safetensors::parse_header(damaged, 8 + damaged.size() + 7, "damaged");
      std::uint64_t bytes = 0;
      for (const auto& entry : read.entries) bytes += entry.bytes;
      CHECK(bytes == 7);
    } catch (const Error& error) {
      ++refused;
      if (error.code() != ErrorCode::corrupt) FAIL(error.what());
    }
  }
  CHECK(refused > 10'000);
}

TEST_CASE("tensors aren't written in the place of a device, a pipe or a folder",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  std::vector<float> x{1, 2};
  const std::vector<NamedTensor> tensors{{"x", std::span{x}}};
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0666) == 0);
  fs::create_directory(folder / "folder");
  fs::create_symlink("/dev/null", folder / "null");
  fs::create_symlink("loop", folder / "loop");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"pipe", "a pipe"}, {"folder", "a folder"}, {"null", "a device"}, {"loop", "Too many"}};
  for (const auto& [name, words] : cases) {
    INFO(name);
    CHECK_THROWS_WITH(save_safetensors(folder / name, tensors), Catch::Contains(words));
  }
  CHECK(fs::is_fifo(folder / "pipe"));
  CHECK(fs::is_character_file("/dev/null"));
  CHECK(names_in(folder.path()) == std::vector<std::string>{"folder", "loop", "null", "pipe"});
}

TEST_CASE("a symbolic link stays, and the file that it leads to is replaced",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  std::vector<float> x{1, 2};
  const std::vector<NamedTensor> tensors{{"x", std::span{x}}};
  fs::create_directory(folder / "disk");
  put_contents(folder / "disk" / "big", "old");
  fs::create_symlink("disk/big", folder / "second");
  fs::create_symlink("second", folder / "model.safetensors");
  fs::create_symlink("disk/later", folder / "dangling");
  save_safetensors(folder / "model.safetensors", tensors);
  save_safetensors(folder / "dangling", tensors);
  CHECK(fs::is_symlink(folder / "model.safetensors"));
  CHECK(fs::is_symlink(folder / "dangling"));
  for (const auto* name : {"big", "later"})
    CHECK(SafetensorsFile{folder / "disk" / name}.read("x").as<float>()[1] == 2);
  CHECK(names_in(folder / "disk") == std::vector<std::string>{"big", "later"});
}

TEST_CASE("a shape of more bytes than can be counted is refused, and not written as none",
          "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  float x = 1;
  const auto edge = std::int64_t{1} << 32;
  const std::vector<Shape> shapes{
      {edge, edge}, {edge, edge, 1}, {std::int64_t{1} << 62, 2}, {edge, edge, 0}};
  for (const Shape& shape : shapes) {
    const std::vector<NamedTensor> tensors{{"x", TensorView{&x, DType::f32, shape}}};
    CHECK_THROWS_WITH(save_safetensors(folder / "x", tensors),
                      Catch::Contains("'x'") && Catch::Contains("more bytes than can be counted"));
    CheckpointState state;
    state.tensors = {{"x", TensorView{&x, DType::f32, shape}}};
    Checkpointer checkpoints{ProcessGroup::single(), quiet_options(folder / "c")};
    CHECK_THROWS_WITH(checkpoints.save(1, state),
                      Catch::Contains("more bytes than can be counted"));
  }
  const std::vector<NamedTensor> none{{"x", TensorView{nullptr, DType::f32, {0, edge, edge}}}};
  save_safetensors(folder / "x", none);
  CHECK(SafetensorsFile{folder / "x"}.find("x")->bytes == 0);
}
