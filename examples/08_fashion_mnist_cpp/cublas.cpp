#include "cublas.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace example {
namespace {

/// As in cublas_v2.h, which needn't be there.
enum class Status : int { success = 0 };
enum class Form : int { as_it_is = 0, transposed = 1 };
struct Functions {
  Status (*create)(void** handle);
  Status (*destroy)(void* handle);
  Status (*sgemm)(void* handle, Form, Form, int m, int n, int k, const float* alpha, const float* a,
                  int lda, const float* b, int ldb, const float* beta, float* c, int ldc);
  const char* (*explain)(Status);
};

void* load() {
  if (const char* named = std::getenv("ACC_CUBLAS_LIBRARY"); named != nullptr && *named != '\0') {
    if (void* const library = ::dlopen(named, RTLD_NOW | RTLD_LOCAL)) return library;
    throw std::runtime_error{std::string{"cuBLAS: ACC_CUBLAS_LIBRARY names '"} + named +
                             "', which can't be loaded: " + ::dlerror()};
  }
  for (const char* name :
       {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13",
        "/usr/local/cuda/lib64/libcublas.so.12"})
    if (void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  throw std::runtime_error{
      "cuBLAS: libcublas.so.13 was not found: install it (package libcublas), name the file in "
      "ACC_CUBLAS_LIBRARY, or take --device cpu"};
}

template <class Function>
void take(void* library, Function& into, const char* name) {
  into = reinterpret_cast<Function>(::dlsym(library, name));
  if (into == nullptr) throw std::runtime_error{std::string{"cuBLAS: it has no "} + name};
}

const Functions& functions() {
  static const Functions loaded = [] {
    void* const library = load();
    Functions all{};
    take(library, all.create, "cublasCreate_v2");
    take(library, all.destroy, "cublasDestroy_v2");
    take(library, all.sgemm, "cublasSgemm_v2");
    take(library, all.explain, "cublasGetStatusString");
    return all;
  }();
  return loaded;
}

void check(const char* call, Status status) {
  if (status == Status::success) return;
  throw std::runtime_error{std::string{call} + ": " + functions().explain(status)};
}

}  // namespace

Cublas::Cublas() { check("cublasCreate", functions().create(&handle_)); }
Cublas::Cublas(Cublas&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
Cublas::~Cublas() {
  if (handle_ != nullptr) (void)functions().destroy(handle_);
}

/// cuBLAS has its matrices column by column: what is row by row here is a transpose to it, and
/// (left * right)' is right' * left'.
void Cublas::multiply(const Matrix& left, const Matrix& right, float keep, float* out) const {
  const auto size = [](std::size_t extent) { return static_cast<int>(extent); };
  const auto form = [](const Matrix& m) {
    return m.by_columns ? Form::transposed : Form::as_it_is;
  };
  const auto pitch = [&](const Matrix& m) { return size(m.by_columns ? m.rows : m.columns); };
  const float once = 1;
  check("cublasSgemm",
        functions().sgemm(handle_, form(right), form(left), size(right.columns), size(left.rows),
                          size(left.columns), &once, right.data, pitch(right), left.data,
                          pitch(left), &keep, out, size(right.columns)));
}

}  // namespace example
