// The part of a CUDA driver that runs kernels, without a GPU: the bodies of runtime/device as
// loops, on the streams of the fake CUDA runtime. FAKE_CUDA: old_driver (it refuses the image).
#include "runtime/device/bodies.hpp"
#include "runtime/device/driver.hpp"
#include "tests/support/fake_nccl/faults.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string_view>

extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data);

namespace {

using namespace acc::runtime::device;
using body::Word;

/// One block of a launch, all of its threads after each other.
class OnHost {
 public:
  OnHost(std::size_t block, std::size_t blocks, std::size_t threads)
      : first_{block * threads}, step_{blocks * threads}, threads_{threads} {}

  template <class Body>
  void each(std::size_t count, const Body& body) const {
    for (std::size_t base = first_; base < count; base += step_)
      for (std::size_t i = base; i < std::min(base + threads_, count); ++i) body(i);
  }
  Word* table() { return table_.data(); }
  template <class Body>
  void over_table(const Body& body) const {
    for (std::size_t e = 0; e < table_.size(); ++e) body(e);
  }
  void sync() const {}
  void add(Word* to, Word value) const { *to += value; }
  void add_in_block(Word* to, Word value) const { *to += value; }
  void set(unsigned* flag) const { *flag = 1; }
  void raise(Word* to, Word value) const { *to = std::max(*to, value); }

 private:
  std::size_t first_, step_, threads_;
  std::array<Word, 256> table_{};
};

using Run = void (*)(const void* arguments, unsigned blocks, unsigned threads);
struct FakeFunction {
  std::string_view name;
  std::size_t bytes;
  Run run;
};

template <class Arguments>
void run_blocks(const void* given, unsigned blocks, unsigned threads) {
  Arguments arguments;
  std::memcpy(&arguments, given, sizeof arguments);
  for (unsigned block = 0; block < blocks; ++block) {
    OnHost machine{block, blocks, threads};
    body::run(machine, arguments);
  }
}

#define ACC_FAKE_KERNEL(name, ...) \
  {#name, sizeof(body::__VA_ARGS__), run_blocks<body::__VA_ARGS__>},
const FakeFunction kFunctions[] = {ACC_DEVICE_KERNELS(ACC_FAKE_KERNEL)};

struct Launch {
  Run run;
  unsigned blocks, threads;
  std::array<char, 128> arguments;
};

void run_launch(void* data) {
  auto* const launch = static_cast<Launch*>(data);
  launch->run(launch->arguments.data(), launch->blocks, launch->threads);
  delete launch;  // NOLINT(cppcoreguidelines-owning-memory)
}

}  // namespace

extern "C" {

int cuCtxGetCurrent(Context* context) {
  static int only = 0;
  *context = reinterpret_cast<Context>(&only);
  return 0;
}
int cuModuleLoadData(Module* module, const void* image) {
  if (acc::fake::fault("FAKE_CUDA", "old_driver")) return 222;
  // The magic number of a fat binary.
  constexpr unsigned char kMagic[] = {0x50, 0xed, 0x55, 0xba};
  if (std::memcmp(image, kMagic, sizeof kMagic) != 0) return 200;
  *module = reinterpret_cast<Module>(const_cast<void*>(image));
  return 0;
}
int cuModuleGetFunction(Function* function, Module, const char* name) {
  for (const auto& known : kFunctions) {
    if (known.name != name) continue;
    *function = reinterpret_cast<Function>(const_cast<FakeFunction*>(&known));
    return 0;
  }
  return 500;
}
int cuLaunchKernel(Function function, unsigned grid_x, unsigned, unsigned, unsigned block_x,
                   unsigned, unsigned, unsigned, void* stream, void** parameters, void**) {
  const auto& known = *reinterpret_cast<const FakeFunction*>(function);
  auto* const launch = new Launch{known.run, grid_x, block_x, {}};
  std::memcpy(launch->arguments.data(), parameters[0], known.bytes);
  return cudaLaunchHostFunc(stream, run_launch, launch);
}
int cuGetErrorString(int status, const char** text) {
  *text = status == 500 ? "named symbol not found" : "fake: an error";
  return 0;
}

}  // extern "C"
