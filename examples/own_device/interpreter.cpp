#include "interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <variant>

namespace own {
namespace {

std::int64_t rounding_shift(std::int64_t value, std::uint32_t s) {
  return s == 0 ? value : (value + (std::int64_t{1} << (s - 1))) >> s;
}

std::int8_t limit(std::int64_t value, std::int32_t lo, std::int32_t hi) {
  return static_cast<std::int8_t>(std::clamp<std::int64_t>(value, lo, hi));
}

/// A sum in 32 bits, which wrap around.
std::int32_t sum_of(std::int32_t a, std::int64_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

/// Where a tap of a window lies in the tile, or below 0.
std::int64_t tap(std::uint32_t out, std::uint32_t stride, std::uint32_t k, std::uint32_t dilation,
                 std::uint32_t pad, std::uint32_t extent) {
  const std::int64_t at = std::int64_t{out} * stride + std::int64_t{k} * dilation - pad;
  return at < extent ? at : -1;
}

std::uint32_t blocks_of(std::uint32_t channels, std::uint32_t c) { return (channels + c - 1) / c; }

}  // namespace

std::uint32_t Interpreter::run(std::span<const std::byte> program, std::uint32_t& fence) {
  constexpr std::uint64_t header_bytes = isa::ProgramHeader::size_bytes;
  const auto refuse = [](bool wrong, isa::ErrorCode error) {
    if (wrong) throw Stop{error};
  };
  refuse(program.size() < header_bytes, isa::ErrorCode::bad_program);
  bool reserved_clear = false;
  const auto header = isa::unpack<isa::ProgramHeader>(program.data(), &reserved_clear);
  refuse(header.magic != isa::program_magic, isa::ErrorCode::bad_program);
  refuse(header.header_crc != isa::crc32c(program.first(header_bytes - 4)), isa::ErrorCode::crc);
  refuse(!reserved_clear || header.version >> 16 != isa::version_major ||
             (header.version & 0xFFFF) > isa::version_minor || header.count == 0 ||
             header.count > isa::max_instructions || header.ocm_bytes > ocm_bytes ||
             header.acc_bytes > acc_bytes ||
             program.size() != header_bytes + std::uint64_t{header.count} * isa::instruction_bytes,
         isa::ErrorCode::bad_program);
  refuse(header.body_crc != isa::crc32c(program.subspan(header_bytes)), isa::ErrorCode::crc);

  for (pc_ = 0; pc_ < header.count; ++pc_) {
    const isa::Decoded decoded = isa::try_decode(isa::word_at(program, pc_));
    if (!decoded.legal) throw Stop{isa::ErrorCode::illegal, pc_};
    const isa::Instruction& instruction = decoded.instruction;
    take_tokens(instruction);
    for (const bool dry : {true, false}) {
      dry_ = dry;
      std::visit([this](const auto& one) { execute(one); }, instruction);
    }
    give_tokens(instruction);
    if (const auto* raised = std::get_if<isa::Fence>(&instruction)) {
      fence = std::max(fence, raised->value);
    }
  }
  for (const auto& given : tokens_) {
    if (std::ranges::any_of(given, [](int count) { return count != 0; })) {
      throw Stop{isa::ErrorCode::token, header.count - 1};
    }
  }
  return header.count;
}

void Interpreter::take_tokens(const isa::Instruction& instruction) {
  const isa::Engine engine = isa::engine(instruction);
  if (engine == isa::Engine::all) return;
  const auto take = [&](bool wanted, isa::Engine from) {
    if (!wanted) return;
    int& count = tokens_[static_cast<std::size_t>(from)][static_cast<std::size_t>(engine)];
    if (count == 0) throw Stuck{};
    --count;
  };
  take(isa::common(instruction).deps.pop_prev, isa::previous(engine));
  take(isa::common(instruction).deps.pop_next, isa::next(engine));
}

void Interpreter::give_tokens(const isa::Instruction& instruction) {
  const isa::Engine engine = isa::engine(instruction);
  if (engine == isa::Engine::all) return;
  const auto give = [&](bool wanted, isa::Engine to) {
    if (!wanted) return;
    int& count = tokens_[static_cast<std::size_t>(engine)][static_cast<std::size_t>(to)];
    if (++count > 255) throw Stop{isa::ErrorCode::token, pc_};
  };
  give(isa::common(instruction).deps.push_prev, isa::previous(engine));
  give(isa::common(instruction).deps.push_next, isa::next(engine));
}

// ---- Memory

std::byte* Interpreter::ocm(std::uint64_t byte, std::uint64_t size) {
  if (byte + size > ocm_bytes) throw Stop{isa::ErrorCode::ocm_range, pc_, isa::ocm_base + byte};
  return memory_.ocm.data() + byte;
}

std::int32_t& Interpreter::acc(std::uint64_t row, std::uint64_t lane) {
  const std::uint64_t at = row * isa::lanes + lane;
  if (at >= memory_.acc.size()) throw Stop{isa::ErrorCode::acc_range, pc_, row};
  return memory_.acc[at];
}

std::byte* Interpreter::bytes(std::uint32_t place, std::uint64_t offset, std::uint64_t size) {
  if (place == isa::ocm_place) return ocm(offset, size);
  const Window& window = segments_[place];
  if (offset > window.size || size > window.size - offset) {
    throw Stop{isa::ErrorCode::seg_limit, pc_, window.base + offset};
  }
  std::byte* const found = memory_.at(window.base + offset, size);
  if (found == nullptr) throw Stop{isa::ErrorCode::bus, pc_, window.base + offset};
  return found;
}

isa::QuantRecord Interpreter::record(const std::byte* at) const {
  const auto record = isa::unpack<isa::QuantRecord>(at);
  if (record.m < 1 || record.m > 32767 || record.s < 1 || record.s > 47 || record.flags != 0) {
    throw Stop{isa::ErrorCode::bad_param, pc_};
  }
  return record;
}

// ---- LD and ST

void Interpreter::execute(const isa::Load& i) {
  const std::uint64_t width = std::uint64_t{i.pad_left} + i.row_bytes + i.pad_right;
  for (std::uint64_t t = 0; t < i.pad_top + i.rows + i.pad_bottom; ++t) {
    std::byte* const to = ocm(i.ocm_addr + t * i.ocm_stride, width);
    const bool has_data = t >= i.pad_top && t < i.pad_top + i.rows;
    const std::byte* const from =
        has_data ? bytes(i.segment, i.offset + (t - i.pad_top) * i.ddr_stride, i.row_bytes)
                 : nullptr;
    if (dry_) continue;
    std::memset(to, 0, width);
    if (has_data) std::memcpy(to + i.pad_left, from, i.row_bytes);
  }
}

void Interpreter::execute(const isa::LoadP& i) {
  constexpr std::uint64_t record_bytes = isa::QuantRecord::size_bytes;
  const std::byte* const from = bytes(i.segment, i.offset, record_bytes * i.count);
  std::byte* const to = ocm(std::uint64_t{i.ocm_line} * isa::line_bytes, record_bytes * i.count);
  for (std::uint64_t at = 0; at < i.count; ++at) record(from + at * record_bytes);
  if (!dry_) std::memcpy(to, from, record_bytes * i.count);
}

void Interpreter::execute(const isa::Store& i) {
  for (std::uint64_t r = 0; r < i.rows; ++r) {
    const std::byte* const from = ocm(i.ocm_addr + r * i.ocm_stride, i.row_bytes);
    std::byte* const to = bytes(i.segment, i.offset + r * i.ddr_stride, i.row_bytes);
    if (!dry_) std::memmove(to, from, i.row_bytes);
  }
}

void Interpreter::execute(const isa::Convert& i) {
  const auto mode = static_cast<isa::CvtMode>(i.mode);
  const bool real = mode == isa::CvtMode::quantize || mode == isa::CvtMode::dequantize;
  const bool to_blocked = mode == isa::CvtMode::quantize || mode == isa::CvtMode::block;
  const std::uint64_t c = 1U << i.log2c, element = real ? 4 : 1;
  const auto blocks = blocks_of(i.channels, static_cast<std::uint32_t>(c));
  for (std::uint64_t p = 0; p < i.pixels; ++p) {
    for (std::uint64_t ch = 0; ch < (to_blocked ? blocks * c : i.channels); ++ch) {
      auto& blocked = *reinterpret_cast<std::int8_t*>(
          bytes(i.blocked_place, i.blocked_offset + c * (ch / c * i.block_stride + p) + ch % c, 1));
      if (ch >= i.channels) {
        put<std::int8_t>(blocked, 0);
        continue;
      }
      std::byte* const plain =
          bytes(i.plain_place,
                i.plain_offset + element * (p * i.pixel_stride + ch * i.channel_stride), element);
      float factor = i.scale, value = 0;
      if (i.has(isa::Flag::per_channel)) {
        std::memcpy(&factor, ocm(std::uint64_t{i.scale_line} * isa::line_bytes + 4 * ch, 4), 4);
      }
      if (mode == isa::CvtMode::quantize) {
        std::memcpy(&value, plain, sizeof value);
        value *= factor;
        const float whole = std::isnan(value) ? 0.0f : std::nearbyint(value);
        put(blocked, static_cast<std::int8_t>(std::clamp(whole, -128.0f, 127.0f)));
      } else if (mode == isa::CvtMode::dequantize) {
        value = static_cast<float>(blocked) * factor;
        if (!dry_) std::memcpy(plain, &value, sizeof value);
      } else if (mode == isa::CvtMode::block) {
        put(blocked, static_cast<std::int8_t>(*plain));
      } else {
        put(*plain, static_cast<std::byte>(blocked));
      }
    }
  }
}

// ---- EX

void Interpreter::execute(const isa::Gemm& i) {
  const std::uint64_t c = 1U << i.a_log2c;
  const bool transposed = i.has(isa::Flag::transposed);
  for (std::uint64_t row = 0; row < i.m; ++row) {
    for (std::uint64_t col = 0; col < isa::lanes * isa::blocks_of(i.n); ++col) {
      std::int32_t& to = acc(i.acc_row + col / 32 * i.acc_block_stride + row, col % 32);
      std::int32_t sum = i.has(isa::Flag::accumulate) ? to : 0;
      for (std::uint64_t l = 0; col < i.n && l < i.k; ++l) {
        const std::int32_t a =
            lane(32ULL * i.a_line + c * (l / c * i.a_block_stride + row * i.a_row_stride) + l % c);
        const std::uint64_t of_b = transposed ? col : l, lane_b = transposed ? l : col;
        const std::int32_t b = lane(
            32 * (i.b_line + lane_b / 32 * i.b_block_stride + of_b * i.b_row_stride) + lane_b % 32);
        sum = sum_of(sum, a * b);
      }
      put(to, col < i.n ? sum : 0);
    }
  }
}

void Interpreter::execute(const isa::Conv& i) {
  const std::uint64_t c = 1U << i.in_log2c;
  for (std::uint32_t o = 0; o < isa::lanes * isa::blocks_of(i.out_channels); ++o) {
    for (std::uint32_t y = 0; y < i.out_h; ++y) {
      for (std::uint32_t x = 0; x < i.out_w; ++x) {
        std::int32_t& to =
            acc(i.acc_row + std::uint64_t{o} / 32 * i.acc_block_stride + y * i.out_w + x, o % 32);
        std::int32_t sum = i.has(isa::Flag::accumulate) ? to : 0;
        for (std::uint32_t r = 0; o < i.out_channels && r < i.kernel_h; ++r) {
          const std::int64_t iy = tap(y, i.stride_h, r, i.dilation_h, i.pad_top, i.in_h);
          for (std::uint32_t q = 0; iy >= 0 && q < i.kernel_w; ++q) {
            const std::int64_t ix = tap(x, i.stride_w, q, i.dilation_w, i.pad_left, i.in_w);
            for (std::uint64_t ch = 0; ix >= 0 && ch < i.in_channels; ++ch) {
              const auto pixel = static_cast<std::uint64_t>(iy * i.in_row_stride + ix);
              const std::uint64_t line = ((ch / c * i.kernel_h + r) * i.kernel_w + q) * c + ch % c;
              const std::int32_t a =
                  lane(32ULL * i.in_line + c * (ch / c * i.in_block_stride + pixel) + ch % c);
              const std::int32_t w =
                  lane(32 * (i.w_line + std::uint64_t{o} / 32 * i.w_block_stride + line) + o % 32);
              sum = sum_of(sum, a * w);
            }
          }
        }
        put(to, o < i.out_channels ? sum : 0);
      }
    }
  }
}

void Interpreter::execute(const isa::Depthwise& i) {
  for (std::uint64_t at = 0; at < std::uint64_t{i.blocks} * i.out_h * i.out_w * 32; ++at) {
    const std::uint64_t v = at % 32, b = at / 32 / i.out_w / i.out_h;
    const auto x = static_cast<std::uint32_t>(at / 32 % i.out_w);
    const auto y = static_cast<std::uint32_t>(at / 32 / i.out_w % i.out_h);
    std::int32_t& to = acc(i.acc_row + b * i.acc_block_stride + y * i.out_w + x, v);
    std::int32_t sum = i.has(isa::Flag::accumulate) ? to : 0;
    for (std::uint32_t r = 0; r < i.kernel_h; ++r) {
      const std::int64_t iy = tap(y, i.stride_h, r, i.dilation_h, i.pad_top, i.in_h);
      for (std::uint32_t q = 0; iy >= 0 && q < i.kernel_w; ++q) {
        const std::int64_t ix = tap(x, i.stride_w, q, i.dilation_w, i.pad_left, i.in_w);
        if (ix < 0) continue;
        const auto pixel = static_cast<std::uint64_t>(iy * i.in_row_stride + ix);
        const std::int32_t a = lane(32 * (i.in_line + b * i.in_block_stride + pixel) + v);
        const std::int32_t w = lane(32 * (i.w_line + (b * i.kernel_h + r) * i.kernel_w + q) + v);
        sum = sum_of(sum, a * w);
      }
    }
    put(to, sum);
  }
}

void Interpreter::execute(const isa::Requant& i) {
  for (std::uint64_t ch = 0; ch < isa::lanes * isa::blocks_of(i.channels); ++ch) {
    const bool live = ch < i.channels;
    isa::QuantRecord factors;
    if (live) factors = record(ocm(32ULL * i.param_line + 8 * ch, 8));
    for (std::uint64_t y = 0; y < i.h; ++y) {
      for (std::uint64_t x = 0; x < i.w; ++x) {
        const std::int64_t sum =
            acc(i.acc_row + ch / 32 * i.acc_block_stride + y * i.w + x, ch % 32);
        std::int64_t value = rounding_shift((sum + factors.bias) * factors.m, factors.s);
        if (i.has(isa::Flag::leaky) && value < 0) value = rounding_shift(value * i.neg_m, 15);
        put<std::int8_t>(
            lane(32 * (i.out_line + ch / 32 * i.out_block_stride + y * i.out_row_stride + x) +
                 ch % 32),
            live ? limit(value, i.lo, i.hi) : 0);
      }
    }
  }
}

void Interpreter::execute(const isa::Elementwise& i) {
  const auto function = static_cast<isa::EwFunction>(i.function);
  const auto value_of = [&](std::int64_t a, std::uint64_t b_at) -> std::int64_t {
    switch (function) {
      case isa::EwFunction::add:
        return a * i.m1 + std::int64_t{lane(b_at)} * i.m2;
      case isa::EwFunction::mul:
        return a * lane(b_at) * i.m1;
      case isa::EwFunction::max:
        return std::max(a * i.m1, std::int64_t{lane(b_at)} * i.m2);
      case isa::EwFunction::clamp:
        return a * (a < 0 ? i.m2 : i.m1);
      case isa::EwFunction::lut:
        return lane(32ULL * i.b_line + static_cast<std::uint64_t>(a + 128));
    }
    return 0;
  };
  for (std::uint64_t at = 0; at < std::uint64_t{i.rows} * i.columns * 32; ++at) {
    const std::uint64_t v = at % 32, x = at / 32 % i.columns, r = at / 32 / i.columns;
    std::int8_t& to = lane(32 * (i.out_line + r * i.out_row_stride + x * i.out_step) + v);
    const std::int64_t a = lane(32 * (i.a_line + r * i.a_row_stride + x * i.a_step) + v);
    const std::uint64_t b_at = 32 * (i.b_line + r * i.b_row_stride + x * i.b_step) + v;
    const std::int64_t value = rounding_shift(value_of(a, b_at), i.s);
    put<std::int8_t>(to, v < i.lanes ? limit(value, i.lo, i.hi) : 0);
  }
}

void Interpreter::execute(const isa::Pool& i) {
  const bool is_max = static_cast<isa::PoolFunction>(i.function) == isa::PoolFunction::max;
  for (std::uint64_t at = 0; at < std::uint64_t{i.blocks} * i.out_h * i.out_w * 32; ++at) {
    const std::uint64_t v = at % 32, b = at / 32 / i.out_w / i.out_h;
    const auto x = static_cast<std::uint32_t>(at / 32 % i.out_w);
    const auto y = static_cast<std::uint32_t>(at / 32 / i.out_w % i.out_h);
    std::int64_t value = is_max ? -128 : 0;
    for (std::uint32_t r = 0; r < i.kernel_h; ++r) {
      const std::int64_t iy = tap(y, i.stride_h, r, 1, i.pad_top, i.in_h);
      for (std::uint32_t q = 0; iy >= 0 && q < i.kernel_w; ++q) {
        const std::int64_t ix = tap(x, i.stride_w, q, 1, i.pad_left, i.in_w);
        if (ix < 0) continue;
        const auto pixel = static_cast<std::uint64_t>(iy * i.in_row_stride + ix);
        const std::int64_t e = lane(32 * (i.in_line + b * i.in_block_stride + pixel) + v);
        value = is_max ? std::max(value, e) : value + e;
      }
    }
    put(lane(32 * (i.out_line + b * i.out_block_stride + y * i.out_row_stride + x) + v),
        limit(rounding_shift(value * i.m, i.s), i.lo, i.hi));
  }
}

}  // namespace own
