#include "packed_weights.hpp"

#include "../integer_math.hpp"
#include "pack.hpp"
#include "panel_layout.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

bool is_plain(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// Requires checked arguments.
std::size_t bytes_of_panel(DType dtype, std::int64_t inputs) {
  const auto k = static_cast<std::size_t>(inputs);
  if (is_plain(dtype)) return round_to_line(k * 16 * static_cast<std::size_t>(block_bytes(dtype)));
  return static_cast<std::size_t>(block_format(dtype).panel_bytes(inputs));
}

std::size_t checked_bytes(DType dtype, std::int64_t outputs, std::int64_t inputs) {
  constexpr std::int64_t limit = std::int64_t{1} << 62;
  if (!PackedWeights::is_packable(dtype)) {
    throw Error(Errc::unsupported_dtype, "PackedWeights",
                fmt::format("no packed form for {}", name(dtype)));
  }
  if (outputs < 0 || inputs < 0 || inputs % block_size(dtype) != 0) {
    throw Error(Errc::bad_shape, "PackedWeights",
                fmt::format("[{}, {}] of {}, whose blocks hold {} elements", outputs, inputs,
                            name(dtype), block_size(dtype)));
  }
  // A packed element takes less than 5 bytes and a panel at most 15 rows of padding.
  if (outputs > limit / 8 || inputs > limit / 8 / (outputs + 15)) {
    throw Error(Errc::bad_shape, "PackedWeights",
                fmt::format("[{}, {}] does not fit into memory", outputs, inputs));
  }
  const auto panels = static_cast<std::size_t>(ceil_div(outputs, panel_rows));
  return panels * bytes_of_panel(dtype, inputs);
}

}  // namespace

PackedWeights::PackedWeights(DType dtype, std::int64_t outputs, std::int64_t inputs)
    : owned_(checked_bytes(dtype, outputs, inputs)),
      bytes_(owned_.data()),
      size_(owned_.size_bytes()),
      panel_bytes_(bytes_of_panel(dtype, inputs)),
      outputs_(outputs),
      inputs_(inputs),
      dtype_(dtype) {}

PackedWeights PackedWeights::borrow(DType dtype, std::int64_t outputs, std::int64_t inputs,
                                    std::span<const std::byte> bytes,
                                    std::shared_ptr<const void> owner) {
  const std::size_t size = checked_bytes(dtype, outputs, inputs);
  if (bytes.size() != size) {
    throw Error(Errc::bad_shape, "PackedWeights::borrow",
                fmt::format("{} bytes given, [{}, {}] of {} takes {}", bytes.size(), outputs,
                            inputs, name(dtype), size));
  }
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 != 0) {
    throw Error(Errc::bad_alignment, "PackedWeights::borrow",
                "packed bytes must be 64-byte aligned");
  }
  PackedWeights result;
  result.owner_ = std::move(owner);
  result.bytes_ = bytes.data();
  result.size_ = size;
  result.panel_bytes_ = bytes_of_panel(dtype, inputs);
  result.outputs_ = outputs;
  result.inputs_ = inputs;
  result.dtype_ = dtype;
  return result;
}

PackedWeights PackedWeights::rows(std::int64_t first, std::int64_t last) const noexcept {
  PackedWeights result;
  result.bytes_ = panel(first / panel_rows);
  result.panel_bytes_ = panel_bytes_;
  result.outputs_ = last - first;
  result.inputs_ = inputs_;
  result.dtype_ = dtype_;
  result.size_ = static_cast<std::size_t>(result.panels()) * panel_bytes_;
  return result;
}

bool PackedWeights::is_packable(DType dtype) noexcept {
  return is_plain(dtype) || block_format(dtype).low_bits != 0;
}

std::size_t PackedWeights::packed_bytes(DType dtype, std::int64_t outputs, std::int64_t inputs) {
  return checked_bytes(dtype, outputs, inputs);
}

void PackedWeights::pack(const std::byte* rows, Range panels, int thread, int threads) noexcept {
  const auto row_bytes =
      static_cast<std::size_t>(inputs_ / block_size(dtype_) * block_bytes(dtype_));
  const Range range = split(panels.end - panels.begin, thread, threads);
  for (std::int64_t p = panels.begin + range.begin; p < panels.begin + range.end; ++p) {
    const std::int64_t first = p * panel_rows;
    const PanelSource source{rows + static_cast<std::size_t>(first) * row_bytes, row_bytes,
                             static_cast<int>(std::min(panel_rows, outputs_ - first)), inputs_};
    std::byte* panel = owned_.data() + static_cast<std::size_t>(p) * panel_bytes_;
    if (is_plain(dtype_)) {
      pack_plain_panel(dtype_, source, panel);
    } else {
      pack_block_panel(dtype_, source, panel);
    }
  }
}

void PackedWeights::dequantize_row(std::int64_t row, float* out) const noexcept {
  const std::byte* start = panel(row / panel_rows);
  const int lane = static_cast<int>(row % panel_rows);
  if (is_plain(dtype_)) {
    unpack_plain_row(dtype_, start, lane, inputs_, out);
  } else {
    unpack_block_row(dtype_, start, lane, inputs_, out);
  }
}

}  // namespace tenon::cpu
