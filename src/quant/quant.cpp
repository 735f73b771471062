#include "codecs.hpp"
#include "half.hpp"

#include <tenon/error.hpp>
#include <tenon/quant.hpp>

#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
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
      encode(in + i, block);
    } else {
      set_nan(block);
    }
    std::memcpy(blocks, &block, sizeof block);
    blocks += sizeof block;
  }
}

template <class Block>
void encode_blocks(const float*, std::byte*, std::int64_t) noexcept {}  // refused before

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
      read_plain<std::uint16_t>(blocks, out, count, widen);
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

bool is_quantizable(DType type) noexcept {
  bool encoded = is_floating(type);
  if (is_block(type)) with_block(type, [&]<class Block>(Block) { encoded = is_encoded<Block>; });
  return encoded;
}

void quantize(DType type, const float* in, std::byte* blocks, std::int64_t count) {
  if (!is_floating(type) && !is_block(type)) {
    throw Error(Errc::unsupported_dtype, "quantize",
                fmt::format("{} is neither a floating nor a block type", name(type)));
  }
  if (!is_quantizable(type)) {
    throw Error(Errc::unsupported_dtype, "quantize",
                fmt::format("{} is read and computed with, but writing it takes an importance "
                            "matrix, which is not supported",
                            name(type)));
  }
  if (count < 0 || count % block_size(type) != 0) {
    throw Error(Errc::bad_argument, "quantize",
                fmt::format("{} elements do not make whole blocks of {}, which hold {}", count,
                            name(type), block_size(type)));
  }
  if (count == 0) return;
  switch (type) {
    case DType::f32:
      std::memcpy(blocks, in, static_cast<std::size_t>(count) * 4);
      return;
    case DType::f16:
      write_plain(in, blocks, count, [](float x) { return to_half(x); });
      return;
    case DType::bf16:
      write_plain(in, blocks, count, [](float x) { return to_bfloat16(x); });
      return;
    case DType::f64:
      write_plain(in, blocks, count, [](float x) { return static_cast<double>(x); });
      return;
    default:
      break;
  }
  with_block(type, [&]<class Block>(Block) { encode_blocks<Block>(in, blocks, count); });
}

}  // namespace tenon
