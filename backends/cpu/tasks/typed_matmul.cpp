#include "typed_matmul.hpp"

#include "../elementwise/typed.hpp"
#include "../integer_math.hpp"
#include "../matmul/typed_product.hpp"

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

/// T: double, or an unsigned type, whose arithmetic wraps.
template <class T>
class TypedMatmulTask final : public Task {
 public:
  TypedMatmulTask(const Step& step, Compiler& compiler)
      : y_(step.output), a_(step.inputs[0], y_.shape), b_(step.inputs[1], y_.shape) {
    const int rank = y_.shape.rank();
    m_ = y_.shape[rank - 2];
    n_ = y_.shape[rank - 1];
    k_ = a_.operand.shape[a_.operand.shape.rank() - 1];
    is_direct_ = is_computed_as_stored(y_.shape.dtype());
    compiler.working_memory(packed_a + packed_b + (is_direct_ ? 0 : sums));
  }

  void run(const TaskContext& context) const noexcept override {
    const std::int64_t down = ceil_div(m_, part_rows), across = ceil_div(n_, part_columns);
    const auto batches = static_cast<std::int64_t>(a_.offsets.size());
    const Range parts = context.share(batches * down * across);
    for (std::int64_t p = parts.begin; p < parts.end; ++p) {
      compute(context, p / (down * across), p / across % down * part_rows,
              p % across * part_columns);
    }
  }

 private:
  static constexpr std::int64_t unit = sizeof(T);
  static constexpr std::int64_t most_columns = 64;  // of a tile
  static constexpr std::int64_t packed_a = part_rows * depth * unit;
  static constexpr std::int64_t packed_b = most_columns * depth * unit;
  static constexpr std::int64_t sums = part_rows * part_columns * unit;

  static const ProductTile& tile() noexcept {
    const ProductTiles& tiles = product_tiles();
    if constexpr (std::is_same_v<T, double>) {
      return tiles.f64;
    } else {
      return std::is_same_v<T, std::uint32_t> ? tiles.u32 : tiles.u64;
    }
  }

  void compute(const TaskContext& context, std::int64_t batch, std::int64_t row,
               std::int64_t column) const noexcept {
    const std::int64_t rows = std::min(part_rows, m_ - row);
    const std::int64_t columns = std::min(part_columns, n_ - column);
    const std::int64_t y_unit = block_bytes(y_.shape.dtype());
    std::byte* const y =
        context.pointer<std::byte>(y_) + ((batch * m_ + row) * n_ + column) * y_unit;
    auto* const a = reinterpret_cast<T*>(context.working_memory());
    auto* const b = reinterpret_cast<T*>(context.working_memory() + packed_a);
    auto* const c = is_direct_
                        ? reinterpret_cast<T*>(y)
                        : reinterpret_cast<T*>(context.working_memory() + packed_a + packed_b);
    const std::int64_t step = is_direct_ ? n_ : part_columns;
    const auto index = static_cast<std::size_t>(batch);
    const std::byte* const from_a =
        context.pointer<const std::byte>(a_.operand) + a_.offsets[index] + row * a_.row;
    const std::byte* const from_b =
        context.pointer<const std::byte>(b_.operand) + b_.offsets[index] + column * b_.column;
    const ProductTile& tile = TypedMatmulTask::tile();
    for (std::int64_t k = 0; k < std::max<std::int64_t>(k_, 1); k += depth) {
      const std::int64_t length = std::min(depth, k_ - k);
      for (std::int64_t r = 0; r < rows; r += tile.rows) {
        pack(a_.operand.shape.dtype(), from_a + r * a_.row + k * a_.column, a_.column, a_.row,
             length, std::min(tile.rows, rows - r), tile.rows, a + r * depth);
      }
      for (std::int64_t j = 0; j < columns; j += tile.columns) {
        const std::int64_t width = std::min(tile.columns, columns - j);
        pack(b_.operand.shape.dtype(), from_b + j * b_.column + k * b_.row, b_.row, b_.column,
             length, width, tile.columns, b);
        for (std::int64_t r = 0; r < rows; r += tile.rows) {
          tile.run(a + r * depth, b, length, c + r * step + j, step, std::min(tile.rows, rows - r),
                   width, k > 0);
        }
      }
    }
    if (is_direct_) return;
    for (std::int64_t r = 0; r < rows; ++r) {
      narrow(y_.shape.dtype(), c + r * step, y + r * n_ * y_unit, columns);
    }
  }

  /// to[k][i] for `length` k and `count` i, with zeros up to `width`.
  static void pack(DType dtype, const std::byte* from, std::int64_t k_step, std::int64_t step,
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

  template <class S>
  static void pack_from(const std::byte* from, std::int64_t k_step, std::int64_t step,
                        std::int64_t length, std::int64_t count, std::int64_t width,
                        T* to) noexcept {
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

  Operand y_;
  Matrices a_, b_;
  std::int64_t m_ = 0, n_ = 0, k_ = 0;
  bool is_direct_ = false;
};

}  // namespace

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

}  // namespace tenon::cpu
