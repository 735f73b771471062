#include "pack.hpp"

#include <cstring>

namespace tenon::cpu {
namespace {

template <class T>
void interleave(const PanelSource& source, std::byte* panel) {
  auto* out = reinterpret_cast<T*>(panel);
  for (int r = 0; r < 16; ++r) {
    if (r < source.count) {
      const std::byte* row = source.rows + static_cast<std::size_t>(r) * source.row_bytes;
      for (std::int64_t k = 0; k < source.inputs; ++k) {
        std::memcpy(out + k * 16 + r, row + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
      }
    } else {
      for (std::int64_t k = 0; k < source.inputs; ++k) out[k * 16 + r] = T{};
    }
  }
}

/// Pairs of k side by side; the last of an odd number has a zero.
void interleave_pairs(const PanelSource& source, std::byte* panel) {
  constexpr std::size_t size = sizeof(std::uint16_t);
  auto* out = reinterpret_cast<std::uint16_t*>(panel);
  for (int r = 0; r < 16; ++r) {
    const std::byte* row = source.rows + static_cast<std::size_t>(r) * source.row_bytes;
    for (std::int64_t k = 0; k < source.inputs; k += 2) {
      std::uint16_t pair[2] = {};
      if (r < source.count) {
        const std::size_t bytes = k + 1 < source.inputs ? sizeof pair : size;
        std::memcpy(pair, row + static_cast<std::size_t>(k) * size, bytes);
      }
      std::memcpy(out + k * 16 + 2 * r, pair, sizeof pair);
    }
  }
}

template <class T, class Widen>
void gather(const std::byte* panel, int lane, std::int64_t inputs, float* out, Widen widen) {
  const auto* in = reinterpret_cast<const T*>(panel) + lane;
  for (std::int64_t k = 0; k < inputs; ++k) out[k] = widen(in[k * 16]);
}

}  // namespace

void pack_plain_panel(DType dtype, const PanelSource& source, std::byte* panel) noexcept {
  if (dtype == DType::f32) {
    interleave<float>(source, panel);
  } else if (dtype == DType::f16) {
    interleave<std::uint16_t>(source, panel);
  } else {
    interleave_pairs(source, panel);
  }
}

void unpack_plain_row(DType dtype, const std::byte* panel, int lane, std::int64_t inputs,
                      float* out) noexcept {
  if (dtype == DType::f32) {
    gather<float>(panel, lane, inputs, out, [](float x) { return x; });
  } else if (dtype == DType::f16) {
    gather<std::uint16_t>(panel, lane, inputs, out,
                          [](std::uint16_t x) { return to_float(half{x}); });
  } else {
    const auto* in = reinterpret_cast<const std::uint16_t*>(panel) + 2 * lane;
    for (std::int64_t k = 0; k < inputs; ++k) out[k] = to_float(bfloat16{in[k / 2 * 32 + k % 2]});
  }
}

}  // namespace tenon::cpu
