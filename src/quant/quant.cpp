#include "base/half_bits.hpp"
#include "codecs.hpp"

#include <tenon/error.hpp>
#include <tenon/quant.hpp>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include <fmt/format.h>

namespace tenon {
namespace {

using namespace quant;

/// Calls `use` with a value of the struct that blocks of `type` have.
template <class F>
void with_block(DType type, F use) {
  switch (type) {
#define TENON_BLOCK(type, Block) \
  case DType::type:              \
    return use(Block{});
#include "block_types.def"
#undef TENON_BLOCK
    default:
      assert(is_block(type));
  }
}

template <class Block>
void decode_blocks(const std::byte* blocks, float* out, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; i += Block::size) {
    Block block;
    std::memcpy(&block, blocks, sizeof block);
    decode(block, out + i);
    blocks += sizeof block;
  }
}

/// A block that dequantises to NaN throughout: its scale is one.
template <class Block>
void set_nan(Block& block) noexcept {
  std::memset(&block, 0, sizeof block);
  if constexpr (std::is_same_v<decltype(block.d), float>) {
    block.d = std::numeric_limits<float>::quiet_NaN();
  } else {
    block.d = 0x7E00u;
  }
}

/// iq1_m has its scale in four parts.
void set_nan(BlockIQ1M& block) noexcept {
  std::memset(&block, 0, sizeof block);
  block.scales[2] = 0xE000u;
  block.scales[3] = 0x7000u;
}

/// mxfp4 has no NaN: infinities.
void set_nan(BlockMXFP4& block) noexcept {
  block.exponent = 255;
  std::memset(block.nibbles, 0x77, sizeof block.nibbles);
}

/// nvfp4 has neither: its largest number.
void set_nan(BlockNVFP4& block) noexcept {
  std::memset(block.scales, 0x7E, sizeof block.scales);
  std::memset(block.nibbles, 0x77, sizeof block.nibbles);
}

bool is_finite(const float* values, int count) noexcept {
  // The exponent field is all ones for infinities and NaNs; no float arithmetic, so no branches.
  std::uint32_t special = 0;
  for (int i = 0; i < count; ++i) {
    const auto exponent = (std::bit_cast<std::uint32_t>(values[i]) >> 23) & 0xFFu;
    special |= static_cast<std::uint32_t>(exponent == 0xFFu);
  }
  return special == 0;
}

template <class Block>
  requires is_encoded<Block>
void encode_blocks(const float* in, std::byte* blocks, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; i += Block::size) {
    Block block;
    if (is_finite(in + i, Block::size)) {
      encode({{in + i, Block::size}}, block);
    } else {
      set_nan(block);
    }
    std::memcpy(blocks, &block, sizeof block);
    blocks += sizeof block;
  }
}

template <class Block>
void encode_blocks(const float*, std::byte*, std::int64_t) noexcept {}  // refused before

/// Importances of a block over the largest one, so that their size does not matter. Below 2^-24 of it, where a
/// float's error under the largest one is, they count as that: zeros, too, so that no sum of them is zero.
struct BlockImportance {
  float at[256];
  bool is_zero;

  BlockImportance(std::span<const float> importance) noexcept {
    const float largest = *std::ranges::max_element(importance);
    is_zero = largest == 0;
    for (std::size_t i = 0; i < importance.size(); ++i) {
      const float part = is_zero ? 1.0f : importance[i] / largest;
      at[i] = std::max(part, 0x1p-24f);
    }
  }
};

template <class Block>
void encode_blocks(const float* in, std::byte* blocks, std::int64_t count,
                   std::span<const float> importance) noexcept {
  static_assert(Block::size <= 256);
  std::size_t column = 0;
  for (std::int64_t i = 0; i < count; i += Block::size) {
    Block block;
    if (is_finite(in + i, Block::size)) {
      const BlockImportance weights(importance.subspan(column, Block::size));
      const bool alike = weights.is_zero && is_encoded<Block>;
      encode({{in + i, Block::size}, alike ? nullptr : weights.at}, block);
    } else {
      set_nan(block);
    }
    std::memcpy(blocks, &block, sizeof block);
    blocks += sizeof block;
    column += Block::size;
    if (column == importance.size()) column = 0;
  }
}

/// Plain types: converts one stored element after the other.
template <class Stored, class F>
void read_plain(const std::byte* in, float* out, std::int64_t count, F convert) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    out[i] = convert(value);
  }
}

template <class F>
void write_plain(const float* in, std::byte* out, std::int64_t count, F convert) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = convert(in[i]);
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

}  // namespace

void dequantize(DType type, const std::byte* blocks, float* out, std::int64_t count) noexcept {
  assert(count >= 0 && count % block_size(type) == 0);
  if (count == 0) return;
  switch (type) {
    case DType::f32:
      std::memcpy(out, blocks, static_cast<std::size_t>(count) * 4);
      return;
    case DType::f16:
      read_plain<std::uint16_t>(blocks, out, count, widen_half);
      return;
    case DType::bf16:
      read_plain<bfloat16>(blocks, out, count, [](bfloat16 x) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
      });
      return;
    case DType::f64:
      read_plain<double>(blocks, out, count, [](double x) { return static_cast<float>(x); });
      return;
    default:
      break;
  }
  with_block(type, [&]<class Block>(Block) { decode_blocks<Block>(blocks, out, count); });
}

bool is_quantizable_by_importance(DType type) noexcept {
  return is_floating(type) || is_block(type);
}

bool is_quantizable(DType type) noexcept {
  bool encoded = is_floating(type);
  if (is_block(type)) with_block(type, [&]<class Block>(Block) { encoded = is_encoded<Block>; });
  return encoded;
}

namespace {

void check_type(DType type) {
  if (is_quantizable_by_importance(type)) return;
  throw Error(Errc::unsupported_dtype, "quantize",
              fmt::format("{} is neither a floating nor a block type", name(type)));
}

void check_count(DType type, std::int64_t count) {
  if (count >= 0 && count % block_size(type) == 0) return;
  throw Error(Errc::bad_argument, "quantize",
              fmt::format("{} elements do not make whole blocks of {}, which hold {}", count,
                          name(type), block_size(type)));
}

void check_importance(DType type, std::int64_t count, std::span<const float> importance) {
  const auto columns = static_cast<std::int64_t>(importance.size());
  if (columns == 0 || columns % block_size(type) != 0 || count % columns != 0) {
    throw Error(Errc::bad_argument, "quantize",
                fmt::format("{} importances are no columns of {} elements in blocks of {}", columns,
                            count, block_size(type)));
  }
  for (std::size_t i = 0; i < importance.size(); ++i) {
    if (std::isfinite(importance[i]) && importance[i] >= 0) continue;
    throw Error(Errc::bad_argument, "quantize",
                fmt::format("the importance of column {} is {}", i, importance[i]));
  }
}

void quantize_plain(DType type, const float* in, std::byte* out, std::int64_t count) noexcept {
  switch (type) {
    case DType::f32:
      std::memcpy(out, in, static_cast<std::size_t>(count) * 4);
      return;
    case DType::f16:
      write_plain(in, out, count, [](float x) { return to_half(x); });
      return;
    case DType::bf16:
      write_plain(in, out, count, [](float x) { return to_bfloat16(x); });
      return;
    default:
      assert(type == DType::f64);
      write_plain(in, out, count, [](float x) { return static_cast<double>(x); });
  }
}

}  // namespace

void quantize(DType type, const float* in, std::byte* blocks, std::int64_t count) {
  check_type(type);
  if (!is_quantizable(type)) {
    throw Error(Errc::unsupported_dtype, "quantize",
                fmt::format("{} is written with an importance for each column only", name(type)));
  }
  check_count(type, count);
  if (count == 0) return;
  if (is_floating(type)) return quantize_plain(type, in, blocks, count);
  with_block(type, [&]<class Block>(Block) { encode_blocks<Block>(in, blocks, count); });
}

void quantize(DType type, const float* in, std::byte* blocks, std::int64_t count,
              std::span<const float> importance) {
  check_type(type);
  check_count(type, count);
  check_importance(type, count, importance);
  if (count == 0) return;
  if (is_floating(type)) return quantize_plain(type, in, blocks, count);
  with_block(type,
             [&]<class Block>(Block) { encode_blocks<Block>(in, blocks, count, importance); });
}

}  // namespace tenon
