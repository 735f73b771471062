#include "sim_random_program.hpp"

#include "sim_random_layers.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tenon::npu::testing {
namespace {

using namespace isa;

/// Cuts layers into tiles, and gives the tiles their tokens.
class ProgramMaker : private LayerMaker {
 public:
  ProgramMaker(std::uint64_t seed, bool tiled)
      : LayerMaker(seed), tiling_(seed ^ 0x5EED), tiled_(tiled) {}

  RandomProgram make() {
    const std::uint32_t layers = 1 + below(3);
    for (std::uint32_t i = 0; i < layers; ++i) {
      layer_ = static_cast<std::uint16_t>(i);
      emit(draw_layer(), i);
    }
    if (below(3) == 0) emit_conversions();
    result_.program.instructions.emplace_back(Halt{});
    result_.program.ocm_bytes = random_ocm_bytes;
    result_.program.acc_bytes = random_acc_bytes;
    result_.output_bytes = out_end_;
    return std::move(result_);
  }

 private:
  void append(std::vector<Instruction>& part) {
    for (Instruction& instruction : part) {
      common(instruction).layer = layer_;
      result_.program.instructions.push_back(instruction);
    }
  }

  void emit(const Layer& layer, std::uint32_t index) {
    std::vector<std::uint32_t> starts{0};
    if (tiled_) {
      while (starts.back() < layer.out_rows) {
        const auto rows = static_cast<std::uint32_t>(1 + tiling_() % layer.out_rows);
        starts.push_back(std::min(starts.back() + rows, layer.out_rows));
      }
    } else {
      starts.push_back(layer.out_rows);
    }
    const std::size_t tiles = starts.size() - 1;
    // The layer before ends with a token from ST to LD, or with a barrier.
    const bool barrier = index > 0 && tiling_() % 2 == 0;
    if (barrier) {
      Barrier drain;
      drain.layer = layer_;
      result_.program.instructions.emplace_back(drain);
    } else if (index > 0) {
      common(result_.program.instructions.back()).deps.push_next = true;
    }
    std::vector<Instruction> constants = layer.constants;
    for (std::size_t t = 0; t < tiles; ++t) {
      const std::uint32_t b = t % 2;
      std::vector<Instruction> loads = t == 0 ? std::move(constants) : std::vector<Instruction>{};
      std::vector<Instruction> compute;
      std::vector<Instruction> stores;
      layer.tile(starts[t], starts[t + 1] - starts[t], {in_line[b], out_line[b], b * acc_half},
                 loads, compute, stores);
      const bool again = t + 2 < tiles;  // a later tile uses these buffers
      common(loads.front()).deps.pop_prev = t == 0 && index > 0 && !barrier;
      common(loads.front()).deps.pop_next = t >= 2;
      common(loads.back()).deps.push_next = true;
      common(compute.front()).deps.pop_prev = true;
      common(compute.front()).deps.pop_next = t >= 2;
      common(compute.back()).deps.push_prev = again;
      common(compute.back()).deps.push_next = true;
      common(stores.front()).deps.pop_prev = true;
      common(stores.back()).deps.push_prev = again;
      append(loads);
      append(compute);
      append(stores);
    }
  }

  /// Everything that Convert does, between DDR and DDR and over OCM, all on ST.
  void emit_conversions() {
    Barrier drain;
    result_.program.instructions.emplace_back(drain);
    Convert to;
    to.pixels = between(1, 40);
    to.channels = between(1, 70);
    to.log2c = below(6);
    const std::uint32_t c = 1U << to.log2c;
    const bool nhwc = below(2) == 0;
    to.pixel_stride = nhwc ? to.channels : 1;
    to.channel_stride = nhwc ? 1 : to.pixels;
    to.block_stride = to.pixels + below(3);
    to.plain_place = static_cast<std::uint32_t>(Segment::input);
    to.blocked_place = below(2) == 0 ? ocm_place : static_cast<std::uint32_t>(Segment::ftmp);
    to.blocked_offset = 64 * below(4);
    const bool real = below(3) != 0;
    const bool per_channel = real && below(2) == 0;
    std::vector<Instruction> all;
    const std::uint32_t elements = to.pixels * to.channels;
    if (real) {
      add_floats(elements);
      to.plain_offset = float_at_;
      to.scale = std::bit_cast<float>(0x3D000000 + below(0x02800000));
    } else {
      to.mode = static_cast<std::uint32_t>(CvtMode::block);
      to.plain_offset = input_at(elements);
    }
    if (per_channel) {
      const std::uint32_t factors = add_weights(to.channels * 4);
      for (std::uint32_t i = 0; i < to.channels; ++i) {
        const std::uint32_t bits = 0x3D000000 + below(0x02800000);
        std::memcpy(result_.weight.data() + factors + i * 4, &bits, 4);
      }
      constexpr std::uint32_t factor_line = 1024;
      all.emplace_back(load(0, factors, factor_line, to.channels * 4));
      all.emplace_back(Barrier{});
      to.flags = flag_bit(Flag::per_channel);
      to.scale = 0;
      to.scale_line = factor_line;
    }
    all.emplace_back(to);
    Convert from = to;
    from.mode = static_cast<std::uint32_t>(real ? CvtMode::dequantize : CvtMode::unblock);
    from.plain_place = static_cast<std::uint32_t>(Segment::output);
    from.plain_offset = output_at(elements * (real ? 4 : 1));
    if (below(2) == 0) {  // the other dense order
      from.pixel_stride = nhwc ? 1 : to.channels;
      from.channel_stride = nhwc ? to.pixels : 1;
    }
    all.emplace_back(from);
    append(all);
    const std::uint32_t used = to.blocked_offset + ceil_div(to.channels, c) * to.block_stride * c;
    result_.ftmp_bytes = std::max(result_.ftmp_bytes, used);
  }

  void add_floats(std::uint32_t count) {
    float_at_ = static_cast<std::uint32_t>((result_.input.size() + 3) / 4 * 4);
    result_.input.resize(float_at_ + std::size_t{count} * 4);
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t bits = any_bits();
      switch (below(9)) {
        case 0:
          break;  // anything, NaN and infinities among it
        case 1:
          bits = std::bit_cast<std::uint32_t>(static_cast<float>(signed_between(-4000, 4000)) / 2);
          break;
        default:
          bits = std::bit_cast<std::uint32_t>(
              static_cast<float>(signed_between(-2'000'000, 2'000'000)) / 3000);
      }
      std::memcpy(result_.input.data() + float_at_ + std::size_t{i} * 4, &bits, 4);
    }
  }

  std::mt19937_64 tiling_;  // apart, so that tiled and untiled programs draw the same layers
  bool tiled_;
  std::uint16_t layer_ = 0;
  std::uint32_t float_at_ = 0;
};

}  // namespace

RandomProgram random_program(std::uint64_t seed, bool tiled) {
  return ProgramMaker(seed, tiled).make();
}

}  // namespace tenon::npu::testing
