#pragma once

#include "runtime/nccl/nccl_backend.hpp"
#include "tests/support/rank_threads.hpp"

#include <acc/cuda.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

/// Ranks as threads over the fake libraries of tests/support/fake_nccl.
namespace acc::testing {

using namespace acc::runtime;

/// Where the build puts programs, and the fakes beside them.
inline std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

/// The fakes instead of the real libraries, with these faults, until the end of the scope.
class Fakes {
 public:
  explicit Fakes(const std::string& nccl_faults = "", const std::string& cuda_faults = "") {
    const auto folder = program_folder();
    ::setenv("ACC_NCCL_LIBRARY", (folder / "libfake_nccl.so").c_str(), 1);
    ::setenv("ACC_CUDART_LIBRARY", (folder / "libfake_cudart.so").c_str(), 1);
    ::setenv("ACC_CUDA_DRIVER_LIBRARY", (folder / "libfake_cudart.so").c_str(), 1);
    ::setenv("ACC_CUBLAS_LIBRARY", (folder / "libfake_cublas.so").c_str(), 1);
    ::setenv("FAKE_NCCL", nccl_faults.c_str(), 1);
    ::setenv("FAKE_CUDA", cuda_faults.c_str(), 1);
    ::unsetenv("LOCAL_RANK");
  }
  ~Fakes() {
    ::setenv("FAKE_NCCL", "", 1);
    ::setenv("FAKE_CUDA", "", 1);
  }
  Fakes(const Fakes&) = delete;
  Fakes& operator=(const Fakes&) = delete;
};

inline GroupFacts facts_of(int rank, int size, const std::string& key) {
  GroupFacts facts;
  facts.rank = facts.local_rank = rank;
  facts.size = facts.local_size = size;
  facts.name = "world";
  facts.key = key;
  for (int r = 0; r < size; ++r) {
    facts.ranks.push_back({.rank = r, .host = "here", .pid = 1000 + r, .local_rank = r});
  }
  return facts;
}

#ifndef ACC_TEST_SLACK
#define ACC_TEST_SLACK 1
#endif
/// What may pass beyond a limit; longer under sanitizers.
inline constexpr Millis kSecond{1000 * ACC_TEST_SLACK};

struct Outcome {
  std::exception_ptr error;
  std::chrono::milliseconds took{0};

  [[nodiscard]] bool succeeded() const { return error == nullptr; }
  /// @throws what isn't an Error
  [[nodiscard]] Error failure() const {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const Error& found) {
      return found;
    }
    return Error{ErrorCode::system, "it did not fail"};
  }
};

using Body = std::function<void(int rank, Backend& backend)>;

/// `size` ranks, each a thread with a backend of its own on one memory store; `absent` ones don't
/// come at all.
inline std::vector<Outcome> on_ranks(int size, const NcclOptions& options, const Body& body,
                                     const std::vector<int>& absent = {}) {
  const auto store = make_memory_store();
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  const auto thrown = on_rank_threads(static_cast<std::size_t>(size), [&](int rank) {
    if (std::find(absent.begin(), absent.end(), rank) != absent.end()) return;
    struct Timed {
      Outcome& outcome;
      std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
      ~Timed() {
        outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::steady_clock::now() - began);
      }
    };
    std::unique_ptr<Backend> backend;
    const Timed timed{outcomes[static_cast<std::size_t>(rank)]};  // without the backend's end
    if (rank < acc::cuda::device_count()) acc::cuda::set_device(rank);
    backend = make_nccl_backend(store, facts_of(rank, size, "job"), options);
    body(rank, *backend);
  });
  for (std::size_t r = 0; r < thrown.size(); ++r) outcomes[r].error = thrown[r];
  return outcomes;
}

inline Call call_of(Operation operation, const void* send, void* recv, std::size_t count,
                    DType type, std::uint64_t sequence = 1) {
  Call call;
  call.what.operation = operation;
  call.what.count = count;
  call.what.dtype = type;
  call.what.sequence = sequence;
  call.send = send;
  call.recv = recv;
  call.limit = Millis{20'000};
  return call;
}

/// Device memory of this many elements, filled from the host.
class OnDevice {
 public:
  OnDevice(const void* from, std::size_t bytes) : buffer_{bytes} {
    acc::cuda::copy(buffer_.data(), from, bytes);
  }
  explicit OnDevice(std::size_t bytes) : buffer_{bytes} {}
  [[nodiscard]] void* data() const { return buffer_.data(); }
  [[nodiscard]] std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(buffer_.bytes());
    acc::cuda::copy(bytes.data(), buffer_.data(), bytes.size());
    return bytes;
  }
  template <Element T>
  [[nodiscard]] std::vector<T> read_as() const {
    std::vector<T> values(buffer_.bytes() / sizeof(T));
    acc::cuda::copy(values.data(), buffer_.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  acc::cuda::DeviceBuffer buffer_;
};

}  // namespace acc::testing
