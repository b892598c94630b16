#pragma once

#include <cstddef>

namespace example {

/// A factor of a matrix product: rows x columns, row by row in memory, or column by column.
struct Matrix {
  const float* data;
  std::size_t rows, columns;
  bool by_columns = false;
};
inline Matrix transposed(Matrix m) { return {m.data, m.columns, m.rows, !m.by_columns}; }

/// NVIDIA's library of matrix products, of the current device, in order with CUDA's default stream.
/// It is loaded when one of these is made: the program starts, and trains on the CPU, where it
/// isn't installed.
class Cublas {
 public:
  /// @throws std::runtime_error one line, also from multiply(): what is wrong
  Cublas();
  Cublas(Cublas&& other) noexcept;
  Cublas& operator=(Cublas&&) = delete;
  ~Cublas();

  /// out = keep * out + left * right, row by row, in device memory.
  void multiply(const Matrix& left, const Matrix& right, float keep, float* out) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace example
