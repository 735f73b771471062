#include "footprint.hpp"
#include "kernels.hpp"
#include "npu/isa/integer_math.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tenon::npu::sim {
namespace {

/// Nearest, ties to even, without regard for the thread's rounding mode.
std::int8_t quantize(float value, float factor) noexcept {
  const float scaled = value * factor;
  if (std::isnan(scaled)) return 0;
  if (scaled >= 127.0F) return 127;
  if (scaled <= -128.0F) return -128;
  const float below = std::floor(scaled);
  const float rest = scaled - below;  // exact: below 2^8, both have the same or finer units
  const auto whole = static_cast<std::int32_t>(below);
  const bool up = rest > 0.5F || (rest == 0.5F && (whole & 1) != 0);
  return static_cast<std::int8_t>(whole + (up ? 1 : 0));
}

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

/// The bytes of one side of a conversion while it lasts: those of OCM or etm in place, those of
/// xchg through a copy that goes back in the end.
class Side {
 public:
  Side(Memory& memory, const Segments& segments, std::uint32_t place, Extent extent,
       std::vector<std::byte>& staging)
      : memory_(memory), extent_(extent), staging_(staging) {
    if (place == isa::ocm_place) {
      data_ = memory.ocm().data() + extent.begin;
      return;
    }
    segment_offset_ = extent.begin;
    extent_.begin += segments[place].base;
    data_ = memory.direct(extent_.begin, extent_.size);
    if (data_ != nullptr) return;
    staging_.resize(extent_.size);
    memory.read(extent_.begin, staging_.data(), extent_.size);
    data_ = staging_.data();
    staged_ = true;
  }
  /// Writes back what the instruction writes of this side, and nothing between its elements.
  void finish(const isa::Instruction& instruction) {
    if (!staged_) return;
    footprint(instruction, [&](const Range& range) {
      if (!range.write || range.space != Space::ddr) return;
      const std::uint64_t offset = range.begin - segment_offset_;
      memory_.write(extent_.begin + offset, staging_.data() + offset, range.size);
    });
  }
  std::byte* data() const noexcept { return data_; }

 private:
  Memory& memory_;
  Extent extent_;
  std::uint64_t segment_offset_ = 0;
  bool staged_ = false;
  std::vector<std::byte>& staging_;
  std::byte* data_ = nullptr;
};

}  // namespace

void Kernels::run(const isa::Convert& i, const Segments& segments, Part part) {
  const auto mode = static_cast<isa::CvtMode>(i.mode);
  const bool real = mode == isa::CvtMode::quantize || mode == isa::CvtMode::dequantize;
  const bool to_blocked = mode == isa::CvtMode::quantize || mode == isa::CvtMode::block;
  const std::uint64_t element = real ? 4 : 1;
  const std::uint64_t c = std::uint64_t{1} << i.log2c;
  const std::uint64_t blocks = ceil_div(i.channels, c);
  const std::uint64_t last = (i.pixels - 1) * std::uint64_t{i.pixel_stride} +
                             (i.channels - 1) * std::uint64_t{i.channel_stride};
  // Lanes past the last channel belong to the blocked side only when it is written.
  const std::uint64_t last_block = (i.channels - 1) / c;
  const std::uint64_t last_lanes = to_blocked ? c : (i.channels - 1) % c + 1;
  Side plain(memory_, segments, i.plain_place, {i.plain_offset, (last + 1) * element}, staging_);
  Side blocked(memory_, segments, i.blocked_place,
               {i.blocked_offset, (last_block * i.block_stride + i.pixels - 1) * c + last_lanes},
               other_staging_);
  const std::byte* const factors =
      memory_.ocm().data() + std::uint64_t{i.scale_line} * isa::line_bytes;

  // One piece is all of it where a side is a copy.
  const std::uint64_t end =
      part.count == pieces(i, segments) ? blocks * i.pixels : part.first + part.count;
  for (std::uint64_t block = part.first / i.pixels; block * i.pixels < end; ++block) {
    std::array<float, isa::lanes> factor;
    factor.fill(i.scale);
    const std::uint64_t used = std::min(c, i.channels - block * c);
    if (i.has(isa::Flag::per_channel)) {
      std::memcpy(factor.data(), factors + block * c * 4, used * 4);
    }
    const std::uint64_t first = std::max(part.first, block * i.pixels) - block * i.pixels;
    const std::uint64_t stop = std::min<std::uint64_t>(end - block * i.pixels, i.pixels);
    for (std::uint64_t p = first; p < stop; ++p) {
      if (p % 4096 == 0) check_abort();
      std::byte* const pixel = blocked.data() + (block * i.block_stride + p) * c;
      std::byte* at = plain.data() + (p * std::uint64_t{i.pixel_stride} +
                                      block * c * std::uint64_t{i.channel_stride}) *
                                         element;
      for (std::uint64_t lane = 0; lane < used; ++lane, at += i.channel_stride * element) {
        float value = 0;
        switch (mode) {
          case isa::CvtMode::quantize:
            std::memcpy(&value, at, sizeof value);
            pixel[lane] = static_cast<std::byte>(quantize(value, factor[lane]));
            break;
          case isa::CvtMode::dequantize:
            value = static_cast<float>(static_cast<std::int8_t>(pixel[lane])) * factor[lane];
            std::memcpy(at, &value, sizeof value);
            break;
          case isa::CvtMode::block:
            pixel[lane] = *at;
            break;
          case isa::CvtMode::unblock:
            *at = pixel[lane];
            break;
        }
      }
      if (to_blocked) std::memset(pixel + used, 0, c - used);
    }
  }
  (to_blocked ? blocked : plain).finish(i);
}

}  // namespace tenon::npu::sim
