#include "array/element.hpp"

#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/quant.hpp>

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace tenon {
namespace {

[[noreturn]] void refuse(DType from, DType to) {
  throw Error(Errc::unsupported_dtype, "HostBuffer::to",
              fmt::format("{} does not convert to {}", name(from), name(to)));
}

using Convert = void (*)(const std::byte* from, std::byte* to, std::int64_t count);

template <class From, class To>
void convert_elements(const std::byte* from, std::byte* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    element::store(to + at * sizeof(To),
                   element::convert<To>(element::load<From>(from + at * sizeof(From))));
  }
}

Convert find_convert(DType from, DType to) {
  return element::visit_plain(from, [&]<class From>(std::type_identity<From>) -> Convert {
    return element::visit_plain(to, [&]<class To>(std::type_identity<To>) -> Convert {
      return &convert_elements<From, To>;
    });
  });
}

/// Blocks to a floating type that is not f32, through a few cache lines of f32.
void dequantize_to(DType from, const std::byte* blocks, DType to, std::byte* out,
                   std::int64_t count) {
  constexpr std::int64_t piece_size = 1024;  // a multiple of every block size
  alignas(64) std::array<float, piece_size> piece;
  const Convert convert = find_convert(DType::f32, to);
  for (std::int64_t done = 0; done < count; done += piece_size) {
    const std::int64_t n = std::min(piece_size, count - done);
    dequantize(from, blocks + done / block_size(from) * block_bytes(from), piece.data(), n);
    convert(reinterpret_cast<const std::byte*>(piece.data()), out + done * block_bytes(to), n);
  }
}

}  // namespace

HostBuffer HostBuffer::to(DType dtype) const {
  require_array();
  const DType from = shape().dtype();
  if (dtype == from) return contiguous();
  if (is_object(from) || is_object(dtype)) refuse(from, dtype);
  if (is_complex(from) || (is_block(from) ? !is_floating(dtype) : is_block(dtype) && from != f32)) {
    refuse(from, dtype);
  }
  if (!is_contiguous()) return contiguous().to(dtype);

  HostBuffer result = uninitialized(shape().with_dtype(dtype));
  const std::int64_t count = shape().elements();
  std::byte* const out = result.view_.data;
  if (is_block(dtype)) {
    quantize(dtype, view_.as<float>(), out, count);
  } else if (!is_block(from)) {
    find_convert(from, dtype)(view_.data, out, count);
  } else if (dtype == DType::f32) {
    dequantize(from, view_.data, result.view_.as<float>(), count);
  } else {
    dequantize_to(from, view_.data, dtype, out, count);
  }
  return result;
}

}  // namespace tenon
