#include "typed_matmul.hpp"

#include "../elementwise/typed.hpp"
#include "../integer_math.hpp"
#include "../matmul/typed_product.hpp"
#include "../matmul/vector_product.hpp"
#include "reader.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace tenon::cpu {
namespace {

/// A part of the result that one thread computes, and products that are summed before the next
/// ones are packed: a part's sums stay in L2, and so does a packed block of a.
constexpr std::int64_t part_rows = 96, part_columns = 256, depth = 256;

/// Steps between elements in bytes, and where the matrices of a batch start.
struct Matrices {
  Operand operand;
  std::int64_t row, column;
  std::vector<std::int64_t> offsets;

  Matrices(const Operand& matrices, const Shape& output) : operand(matrices) {
    const int rank = operand.shape.rank(), leading = output.rank() - 2;
    row = operand.strides[static_cast<std::size_t>(rank - 2)];
    column = operand.strides[static_cast<std::size_t>(rank - 1)];
    std::int64_t count = 1;
    for (int i = 0; i < leading; ++i) count *= output[i];
    for (std::int64_t m = 0; m < count; ++m) {
      std::int64_t rest = m, offset = 0;
      for (int i = leading - 1; i >= 0; --i) {
        const int own = i - (output.rank() - rank);
        if (own >= 0 && operand.shape[own] != 1) {
          offset += rest % output[i] * operand.strides[static_cast<std::size_t>(own)];
        }
        rest /= output[i];
      }
      offsets.push_back(offset);
    }
  }
};

/// A factor of a product: where it lies, with steps in bytes.
struct Factor {
  DType dtype;
  const std::byte* at;
  std::int64_t row, column;
};

template <class T>
const ProductTile& tile_of() noexcept {
  const ProductTiles& tiles = product_tiles();
  if constexpr (std::is_same_v<T, double>) {
    return tiles.f64;
  } else {
    return std::is_same_v<T, std::uint32_t> ? tiles.u32 : tiles.u64;
  }
}

constexpr std::int64_t most_columns = 64;  // of a tile
template <class T>
constexpr std::int64_t packed_a_bytes = part_rows * depth * std::int64_t{sizeof(T)};
template <class T>
constexpr std::int64_t packed_b_bytes = most_columns * depth * std::int64_t{sizeof(T)};

template <class S, class T>
void pack_from(const std::byte* from, std::int64_t k_step, std::int64_t step, std::int64_t length,
               std::int64_t count, std::int64_t width, T* to) noexcept {
  if constexpr (std::is_floating_point_v<S> == std::is_floating_point_v<T>) {
    for (std::int64_t k = 0; k < length; ++k, from += k_step, to += width) {
      for (std::int64_t i = 0; i < count; ++i) {
        S value;
        std::memcpy(&value, from + i * step, sizeof value);
        to[i] = static_cast<T>(value);
      }
      std::fill(to + count, to + width, T{});
    }
  }
}

/// to[k][i] for `length` k and `count` i, with zeros up to `width`.
template <class T>
void pack(DType dtype, const std::byte* from, std::int64_t k_step, std::int64_t step,
          std::int64_t length, std::int64_t count, std::int64_t width, T* to) noexcept {
  switch (dtype) {
    case DType::f64:
      return pack_from<double>(from, k_step, step, length, count, width, to);
    case DType::i8:
      return pack_from<std::int8_t>(from, k_step, step, length, count, width, to);
    case DType::i16:
      return pack_from<std::int16_t>(from, k_step, step, length, count, width, to);
    case DType::i32:
      return pack_from<std::int32_t>(from, k_step, step, length, count, width, to);
    case DType::u8:
      return pack_from<std::uint8_t>(from, k_step, step, length, count, width, to);
    case DType::u16:
      return pack_from<std::uint16_t>(from, k_step, step, length, count, width, to);
    case DType::u32:
      return pack_from<std::uint32_t>(from, k_step, step, length, count, width, to);
    default:
      return pack_from<std::int64_t>(from, k_step, step, length, count, width, to);
  }
}

/// c [rows, columns], of at most part_rows by part_columns, with `step` elements between its rows.
/// `memory`: packed_a_bytes and packed_b_bytes.
template <class T>
void multiply_part(const Factor& a, const Factor& b, std::int64_t rows, std::int64_t columns,
                   std::int64_t products, T* c, std::int64_t step, std::byte* memory) noexcept {
  const ProductTile& tile = tile_of<T>();
  auto* const packed_a = reinterpret_cast<T*>(memory);
  auto* const packed_b = reinterpret_cast<T*>(memory + packed_a_bytes<T>);
  for (std::int64_t k = 0; k < std::max<std::int64_t>(products, 1); k += depth) {
    const std::int64_t length = std::min(depth, products - k);
    for (std::int64_t r = 0; r < rows; r += tile.rows) {
      pack(a.dtype, a.at + r * a.row + k * a.column, a.column, a.row, length,
           std::min(tile.rows, rows - r), tile.rows, packed_a + r * depth);
    }
    for (std::int64_t j = 0; j < columns; j += tile.columns) {
      const std::int64_t width = std::min(tile.columns, columns - j);
      pack(b.dtype, b.at + j * b.column + k * b.row, b.row, b.column, length, width, tile.columns,
           packed_b);
      for (std::int64_t r = 0; r < rows; r += tile.rows) {
        tile.run(packed_a + r * depth, packed_b, length, c + r * step + j, step,
                 std::min(tile.rows, rows - r), width, k > 0);
      }
    }
  }
}

/// T: double, or an unsigned type, whose arithmetic wraps.
template <class T>
class TypedMatmulTask final : public PartwiseTask {
 public:
  TypedMatmulTask(const Step& step, Compiler& compiler)
      : y_(step.output), a_(step.inputs[0], y_.shape), b_(step.inputs[1], y_.shape) {
    const int rank = y_.shape.rank();
    m_ = y_.shape[rank - 2];
    n_ = y_.shape[rank - 1];
    k_ = a_.operand.shape[a_.operand.shape.rank() - 1];
    is_direct_ = is_computed_as_stored(y_.shape.dtype());
    compiler.working_memory(packed_bytes + (is_direct_ ? 0 : sums));
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t down = ceil_div(m_, part_rows), across = ceil_div(n_, part_columns);
    const auto batches = static_cast<std::int64_t>(a_.offsets.size());
    const Range parts = context.share(batches * down * across);
    for (std::int64_t p = parts.begin; p < parts.end && !context.worker.is_interrupted(); ++p) {
      compute(context, p / (down * across), p / across % down * part_rows,
              p % across * part_columns);
    }
  }

 private:
  static constexpr std::int64_t packed_bytes = packed_a_bytes<T> + packed_b_bytes<T>;
  static constexpr std::int64_t sums = part_rows * part_columns * std::int64_t{sizeof(T)};

  void compute(const TaskContext& context, std::int64_t batch, std::int64_t row,
               std::int64_t column) const noexcept {
    const std::int64_t rows = std::min(part_rows, m_ - row);
    const std::int64_t columns = std::min(part_columns, n_ - column);
    const std::int64_t y_unit = block_bytes(y_.shape.dtype());
    std::byte* const y =
        context.pointer<std::byte>(y_) + ((batch * m_ + row) * n_ + column) * y_unit;
    auto* const c = reinterpret_cast<T*>(is_direct_ ? y : context.working_memory() + packed_bytes);
    const std::int64_t step = is_direct_ ? n_ : part_columns;
    const auto factor = [&](const Matrices& x, std::int64_t offset) {
      const std::byte* first =
          context.pointer<const std::byte>(x.operand) + x.offsets[static_cast<std::size_t>(batch)];
      return Factor{x.operand.shape.dtype(), first + offset, x.row, x.column};
    };
    multiply_part(factor(a_, row * a_.row), factor(b_, column * b_.column), rows, columns, k_, c,
                  step, context.working_memory());
    if (is_direct_) return;
    for (std::int64_t r = 0; r < rows; ++r) {
      narrow(y_.shape.dtype(), c + r * step, y + r * n_ * y_unit, columns);
    }
  }

  Operand y_;
  Matrices a_, b_;
  std::int64_t m_ = 0, n_ = 0, k_ = 0;
  bool is_direct_ = false;
};

/// A product with a vector, of whose matrix every element is read once: where it lies, without packing. Either factor may be the
/// vector; the matrix' lines are then along k or along the results.
class VectorProductTask final : public PartwiseTask {
 public:
  VectorProductTask(const Step& step, Compiler& compiler)
      : y_(step.output), a_(step.inputs[0], y_.shape), b_(step.inputs[1], y_.shape) {
    const int rank = y_.shape.rank();
    const std::int64_t m = y_.shape[rank - 2], n = y_.shape[rank - 1];
    k_ = a_.operand.shape[a_.operand.shape.rank() - 1];
    is_column_ = n == 1;
    results_ = is_column_ ? m : n;
    result_step_ = is_column_ ? a_.row : b_.column;
    k_step_ = is_column_ ? a_.column : b_.row;
    const Operand& matrix = (is_column_ ? a_ : b_).operand;
    dtype_ = matrix.shape.dtype();
    has_dots_ = k_step_ == block_bytes(dtype_);
    // Lines along the results are read in long pieces, as far as there are as many as threads.
    const std::int64_t share = round_up(ceil_div(results_, compiler.threads()), few);
    at_once_ = has_dots_ ? few : std::clamp(share, few, many);
    number_bytes_ = compute_bytes(compute_type(dtype_));
    vector_bytes_ = round_up(std::max<std::int64_t>(k_, 1) * number_bytes_, line);
    compiler.working_memory(vector_bytes_);
  }

  /// Whether it computes this step.
  static bool suits(const Step& step) {
    const Shape& output = step.output.shape;
    const DType dtype = output.dtype();
    if (!is_computed_as_stored(dtype) && dtype != DType::f16 && dtype != DType::bf16) return false;
    const int rank = output.rank();
    const bool is_column = output[rank - 1] == 1;
    if (!is_column && output[rank - 2] != 1) return false;
    const Operand& matrix = step.inputs[is_column ? 0 : 1];
    const auto last = static_cast<std::size_t>(matrix.shape.rank() - 1);
    const std::int64_t unit = block_bytes(dtype);
    // Each thread has the vector for itself, as it is computed with.
    constexpr std::int64_t most_bytes = 1 << 20;
    const std::int64_t k = matrix.shape[static_cast<int>(is_column ? last : last - 1)];
    if (k > most_bytes / compute_bytes(compute_type(dtype))) return false;
    const bool has_dots = matrix.strides[is_column ? last : last - 1] == unit;
    // f32 rows by matrices are few_rows_body.hpp's.
    if (compute_type(dtype) == Compute::f32) return is_column && has_dots;
    return has_dots || matrix.strides[is_column ? last - 1 : last] == unit;
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t across = ceil_div(results_, at_once_);
    const auto batches = static_cast<std::int64_t>(a_.offsets.size());
    const Range parts = context.share(batches * across);
    std::int64_t batch = -1;
    for (std::int64_t p = parts.begin; p < parts.end && !context.worker.is_interrupted(); ++p) {
      if (p / across != batch) load_vector(context, batch = p / across);
      compute(context, batch, p % across * at_once_);
    }
  }

 private:
  static constexpr std::int64_t line = 64, few = 128, many = 1024;

  const std::byte* start(const TaskContext& context, const Matrices& x,
                         std::int64_t batch) const noexcept {
    return context.pointer<const std::byte>(x.operand) + x.offsets[static_cast<std::size_t>(batch)];
  }

  /// Dense, in the type that is computed in.
  void load_vector(const TaskContext& context, std::int64_t batch) const noexcept {
    const Matrices& vector = is_column_ ? b_ : a_;
    const std::int64_t step = is_column_ ? vector.row : vector.column, unit = block_bytes(dtype_);
    const std::byte* from = start(context, vector, batch);
    std::byte* const to = context.working_memory();
    for (std::int64_t i = 0; i < k_; i += block_elements) {
      const std::int64_t some = std::min(block_elements, k_ - i);
      BlockBuffer stored;
      cpu::copy_run(from + i * step, step, unit, some, stored.bytes);
      widen(dtype_, stored.bytes, to + i * number_bytes_, some);
    }
  }

  void compute(const TaskContext& context, std::int64_t batch, std::int64_t first) const noexcept {
    const std::int64_t count = std::min(at_once_, results_ - first);
    const std::byte* const matrix =
        start(context, is_column_ ? a_ : b_, batch) + first * result_step_;
    std::byte* const y =
        context.pointer<std::byte>(y_) + (batch * results_ + first) * block_bytes(dtype_);
    alignas(line) std::byte numbers[few * 8];
    const bool narrows = !is_computed_as_stored(dtype_);
    void* const to = narrows ? numbers : y;
    const std::byte* const v = context.working_memory();
    if (has_dots_) {
      vector_products().dots(dtype_, matrix, result_step_, count, v, k_, to);
    } else {
      vector_products().combine(dtype_, matrix, k_step_, count, v, k_, to);
    }
    if (narrows) narrow(dtype_, numbers, y, count);
  }

  Operand y_;
  Matrices a_, b_;
  DType dtype_ = DType::f64;
  std::int64_t results_ = 0, k_ = 0, result_step_ = 0, k_step_ = 0;
  std::int64_t number_bytes_ = 8, vector_bytes_ = 0, at_once_ = few;
  bool is_column_ = false, has_dots_ = false;
};

}  // namespace

bool is_vector_product(const Step& step) { return VectorProductTask::suits(step); }

std::unique_ptr<Task> make_vector_product(const Step& step, Compiler& compiler) {
  return std::make_unique<VectorProductTask>(step, compiler);
}

std::unique_ptr<Task> make_typed_matmul(const Step& step, Compiler& compiler) {
  switch (compute_type(step.output.shape.dtype())) {
    case Compute::f64:
      return std::make_unique<TypedMatmulTask<double>>(step, compiler);
    case Compute::i32:
      return std::make_unique<TypedMatmulTask<std::uint32_t>>(step, compiler);
    default:
      return std::make_unique<TypedMatmulTask<std::uint64_t>>(step, compiler);
  }
}

std::int64_t product_f64_bytes() noexcept {
  return packed_a_bytes<double> + packed_b_bytes<double>;
}

void multiply(const ProductF64& p, std::byte* memory) noexcept {
  constexpr std::int64_t unit = sizeof(double);
  for (std::int64_t row = 0; row < p.m; row += part_rows) {
    for (std::int64_t column = 0; column < p.n; column += part_columns) {
      const auto* a = reinterpret_cast<const std::byte*>(p.a + row * p.a_row);
      const auto* b = reinterpret_cast<const std::byte*>(p.b + column * p.b_column);
      multiply_part<double>({DType::f64, a, p.a_row * unit, p.a_column * unit},
                            {DType::f64, b, p.b_row * unit, p.b_column * unit},
                            std::min(part_rows, p.m - row), std::min(part_columns, p.n - column),
                            p.k, p.c + row * p.c_row + column, p.c_row, memory);
    }
  }
}

}  // namespace tenon::cpu
