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

template <class T, class Widen>
void gather(const std::byte* panel, int lane, std::int64_t inputs, float* out, Widen widen) {
  const auto* in = reinterpret_cast<const T*>(panel) + lane;
  for (std::int64_t k = 0; k < inputs; ++k) out[k] = widen(in[k * 16]);
}

}  // namespace

void pack_plain_panel(DType dtype, const PanelSource& source, std::byte* panel) noexcept {
  if (dtype == DType::f32) {
    interleave<float>(source, panel);
  } else {
    interleave<std::uint16_t>(source, panel);
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
    gather<std::uint16_t>(panel, lane, inputs, out,
                          [](std::uint16_t x) { return to_float(bfloat16{x}); });
  }
}

}  // namespace tenon::cpu
