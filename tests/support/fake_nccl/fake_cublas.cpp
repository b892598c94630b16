// A cuBLAS without a GPU, for examples/08_fashion_mnist_cpp: sgemm as BLAS defines it, on the
// memory of fake_cudart, enqueued on the legacy stream. Loaded through ACC_CUBLAS_LIBRARY.

#include <algorithm>

extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data);

namespace {

constexpr int kSuccess = 0, kInvalidValue = 7;

struct Product {
  bool a_transposed, b_transposed;
  int m, n, k;
  float alpha;
  const float* a;
  int lda;
  const float* b;
  int ldb;
  float beta;
  float* c;
  int ldc;

  [[nodiscard]] bool is_sound() const {
    return m >= 0 && n >= 0 && k >= 0 && lda >= std::max(1, a_transposed ? k : m) &&
           ldb >= std::max(1, b_transposed ? n : k) && ldc >= std::max(1, m);
  }
  static const float& at(const float* matrix, int pitch, bool transposed, int row, int column) {
    return transposed ? matrix[column + row * pitch] : matrix[row + column * pitch];
  }
  void take() const {
    for (int column = 0; column < n; ++column)
      for (int row = 0; row < m; ++row) {
        float sum = 0;
        for (int i = 0; i < k; ++i)
          sum += at(a, lda, a_transposed, row, i) * at(b, ldb, b_transposed, i, column);
        float& to = c[row + column * ldc];
        to = alpha * sum + (beta == 0 ? 0 : beta * to);  // with 0 nothing is read
      }
  }
};

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  *handle = new int{0};
  return kSuccess;
}
int cublasDestroy_v2(void* handle) {
  delete static_cast<int*>(handle);
  return kSuccess;
}
const char* cublasGetStatusString(int) { return "a fake error"; }

int cublasSgemm_v2(void*, int form_a, int form_b, int m, int n, int k, const float* alpha,
                   const float* a, int lda, const float* b, int ldb, const float* beta, float* c,
                   int ldc) {
  const Product product{form_a != 0, form_b != 0, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc};
  if (!product.is_sound()) return kInvalidValue;
  const auto take = [](void* data) {
    const auto* const its = static_cast<Product*>(data);
    its->take();
    delete its;
  };
  return cudaLaunchHostFunc(nullptr, take, new Product{product}) == 0 ? kSuccess : kInvalidValue;
}

}  // extern "C"
