// Products of matrices whose elements are f64 or integers.
#pragma once

#include "../task.hpp"

#include <cstdint>
#include <memory>

namespace tenon::cpu {

/// Of a step whose operands are matrices and batches of them.
std::unique_ptr<Task> make_typed_matmul(const Step& step, Compiler& compiler);

/// The same of a matrix and a vector, also of f32 and halves: of those that this suits.
bool is_vector_product(const Step& step);
std::unique_ptr<Task> make_vector_product(const Step& step, Compiler& compiler);

/// c = a b in f64 on the thread that calls. Steps are in elements; rows of c are dense.
struct ProductF64 {
  std::int64_t m, n, k;
  const double* a;
  std::int64_t a_row, a_column;
  const double* b;
  std::int64_t b_row, b_column;
  double* c;
  std::int64_t c_row;
};
/// Bytes of memory that `multiply` needs.
std::int64_t product_f64_bytes() noexcept;
void multiply(const ProductF64& product, std::byte* memory) noexcept;

}  // namespace tenon::cpu
