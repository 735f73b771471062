#include "kernels.hpp"

#include <tenon/npu/isa/structures.hpp>

#include <algorithm>
#include <cstring>

namespace tenon::npu::sim {
namespace {

constexpr std::int64_t rs(std::int64_t value, std::uint32_t shift) noexcept {
  return shift == 0 ? value : (value + (std::int64_t{1} << (shift - 1))) >> shift;
}

constexpr std::int8_t limit(std::int64_t value, std::int32_t lo, std::int32_t hi) noexcept {
  return static_cast<std::int8_t>(std::clamp<std::int64_t>(value, lo, hi));
}

using Line = std::array<std::int8_t, isa::lanes>;
Line load(const std::int8_t* from) noexcept {
  Line result;
  std::memcpy(result.data(), from, result.size());
  return result;
}

}  // namespace

void Kernels::run(const isa::Requant& i, const Segments&, Part part) {
  const bool leaky = i.has(isa::Flag::leaky);
  const std::uint64_t pixels = std::uint64_t{i.h} * i.w;
  const std::uint64_t end = part.first + part.count;
  for (std::uint64_t block = part.first / pixels; block * pixels < end; ++block) {
    check_abort();
    const std::uint64_t first = block * isa::lanes;
    const std::uint64_t used = std::min<std::uint64_t>(isa::lanes, i.channels - first);
    std::array<isa::QuantRecord, isa::lanes> records;
    const auto* bytes = memory_.ocm().data() + std::uint64_t{i.param_line} * isa::line_bytes;
    for (std::uint64_t lane = 0; lane < used; ++lane) {
      records[lane] = isa::unpack<isa::QuantRecord>(bytes + (first + lane) * 8);
    }
    const std::uint64_t begin = std::max(part.first, block * pixels) - block * pixels;
    const std::uint64_t stop = std::min(end, (block + 1) * pixels) - block * pixels;
    for (std::uint64_t y = begin / i.w; y * i.w < stop; ++y) {
      const std::uint64_t left = y * i.w < begin ? begin - y * i.w : 0;
      const std::int32_t* from = acc_row(i.acc_row + block * i.acc_block_stride + y * i.w + left);
      for (std::uint64_t x = left; x < std::min<std::uint64_t>(i.w, stop - y * i.w);
           ++x, from += isa::lanes) {
        Line result{};
        for (std::uint64_t lane = 0; lane < used; ++lane) {
          const isa::QuantRecord& record = records[lane];
          std::int64_t t = rs((std::int64_t{from[lane]} + record.bias) * record.m, record.s);
          if (leaky && t < 0) t = rs(t * i.neg_m, 15);
          result[lane] = limit(t, i.lo, i.hi);
        }
        std::memcpy(line(i.out_line + block * i.out_block_stride + y * i.out_row_stride + x),
                    result.data(), result.size());
      }
    }
  }
}

void Kernels::run(const isa::Elementwise& i, const Segments&, Part part) {
  const auto function = static_cast<isa::EwFunction>(i.function);
  const std::int8_t* const table = line(i.b_line);
  const std::uint64_t end = part.first + part.count;
  for (std::uint64_t row = part.first / i.columns; row * i.columns < end; ++row) {
    check_abort();
    const std::uint64_t first = std::max(part.first, row * i.columns) - row * i.columns;
    const std::uint64_t last = std::min<std::uint64_t>(end - row * i.columns, i.columns);
    for (std::uint64_t column = first; column < last; ++column) {
      const Line a = load(line(i.a_line + row * i.a_row_stride + column * i.a_step));
      Line b{};
      if (function != isa::EwFunction::clamp && function != isa::EwFunction::lut) {
        b = load(line(i.b_line + row * i.b_row_stride + column * i.b_step));
      }
      Line result{};
      for (std::uint32_t lane = 0; lane < i.lanes; ++lane) {
        const std::int64_t va = a[lane];
        const std::int64_t vb = b[lane];
        std::int64_t f = 0;
        switch (function) {
          case isa::EwFunction::add:
            f = va * i.m1 + vb * i.m2;
            break;
          case isa::EwFunction::mul:
            f = va * vb * i.m1;
            break;
          case isa::EwFunction::max:
            f = std::max(va * i.m1, vb * i.m2);
            break;
          case isa::EwFunction::clamp:
            f = va * (va < 0 ? i.m2 : i.m1);
            break;
          case isa::EwFunction::lut:
            result[lane] = table[va + 128];
            continue;
        }
        result[lane] = limit(rs(f, i.s), i.lo, i.hi);
      }
      std::memcpy(line(i.out_line + row * i.out_row_stride + column * i.out_step), result.data(),
                  result.size());
    }
  }
}

void Kernels::run(const isa::Pool& i, const Segments&, Part part) {
  const bool greatest = static_cast<isa::PoolFunction>(i.function) == isa::PoolFunction::max;
  const std::uint64_t end = part.first + part.count;
  for (std::uint64_t row = part.first / i.out_w; row * i.out_w < end; ++row) {
    check_abort();
    const std::uint64_t block = row / i.out_h;
    const std::uint64_t y = row % i.out_h;
    const std::uint64_t first = std::max(part.first, row * i.out_w) - row * i.out_w;
    const std::uint64_t last = std::min<std::uint64_t>(end - row * i.out_w, i.out_w);
    for (std::uint64_t x = first; x < last; ++x) {
      std::array<std::int32_t, isa::lanes> f;
      f.fill(greatest ? -128 : 0);
      for (std::uint64_t r = 0; r < i.kernel_h; ++r) {
        const std::uint64_t iy = y * i.stride_h + r - i.pad_top;  // wraps around above the tile
        if (iy >= i.in_h) continue;
        for (std::uint64_t q = 0; q < i.kernel_w; ++q) {
          const std::uint64_t ix = x * i.stride_w + q - i.pad_left;
          if (ix >= i.in_w) continue;
          const std::int8_t* const e =
              line(i.in_line + block * i.in_block_stride + iy * i.in_row_stride + ix);
          for (std::uint32_t lane = 0; lane < isa::lanes; ++lane) {
            f[lane] = greatest ? std::max<std::int32_t>(f[lane], e[lane]) : f[lane] + e[lane];
          }
        }
      }
      Line result;
      for (std::uint32_t lane = 0; lane < isa::lanes; ++lane) {
        result[lane] = limit(rs(std::int64_t{f[lane]} * i.m, i.s), i.lo, i.hi);
      }
      std::memcpy(line(i.out_line + block * i.out_block_stride + y * i.out_row_stride + x),
                  result.data(), result.size());
    }
  }
}

}  // namespace tenon::npu::sim
