// Any bytes are the manifest of a checkpoint or an error that names the file; also where their
// checksum is right. What is understood is written and read back as the same.
#include "runtime/checkpoint/manifest.hpp"

#include <nlohmann/json.hpp>

#include <zlib.h>

#include <acc/error.hpp>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace acc::runtime;
using namespace acc::runtime::checkpoint;

namespace {

void check(std::string_view text) {
  try {
    const auto manifest = parse_manifest(text, "fuzzed");
    const auto written = to_text(manifest);
    if (to_text(parse_manifest(written, "again")) != written) std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) std::abort();
    if (std::string_view{error.what()}.find("'fuzzed': ") != 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  check(bytes);
  const auto body = nlohmann::json::parse(bytes, nullptr, false);
  if (body.is_discarded()) return 0;
  const auto text = body.dump();
  std::array<char, 9> sum{};
  std::snprintf(sum.data(), sum.size(), "%08lx",
                ::crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size()));
  check(nlohmann::json{{"crc32", sum.data()}, {"manifest", body}}.dump());
  return 0;
}
