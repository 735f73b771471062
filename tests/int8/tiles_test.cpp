// Matrix multiplications on AMX tiles against those with vectors: the same bytes for all sizes, and
// for all ways in which tiles are loaded from pixels.
#include "backends/cpu/built_kernels.hpp"
#include "backends/cpu/int8/int8_kernels.hpp"
#include "support/op_testing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

using cpu::Image;
using cpu::WindowAxis;

struct TileSizes {
  std::int64_t channels, outputs;
  WindowAxis rows, columns;
  bool has_residual = false;
  std::uint8_t zero = 0;
  float spread = 1;  ///< of results, as a multiple of what codes have room for
  bool has_limits = true;
};

std::string to_string(const TileSizes& s) {
  const auto axis = [](const WindowAxis& a) {
    return fmt::format("{} from {} with {} taps, stride {}, dilation {}, {} before", a.outputs,
                       a.inputs, a.taps, a.stride, a.dilation, a.before);
  };
  return fmt::format(
      "{} to {} channels, rows {}, columns {}, residual {}, zero {}, spread {}, limits {}",
      s.channels, s.outputs, axis(s.rows), axis(s.columns), s.has_residual, s.zero, s.spread,
      s.has_limits);
}

template <class T>
std::vector<T> numbers(Random& random, std::int64_t count, std::int64_t low, std::int64_t high) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(random.integer(low, high));
  return values;
}

/// The codes that a kernel makes of random numbers, its results in two parts.
std::vector<std::uint8_t> run(const TileSizes& s, std::uint64_t seed,
                              void (*product)(const cpu::Int8ProductJob&,
                                              const cpu::Part&) noexcept) {
  Random random(seed);
  const std::int64_t panels = (s.outputs + 15) / 16, row = s.columns.inputs * s.channels;
  const std::int64_t panel = s.rows.taps * s.columns.taps * s.channels * 16;
  const auto x = numbers<std::uint8_t>(random, s.rows.inputs * row + cpu::int8_overread, 0, 255);
  const auto filter = numbers<std::int8_t>(random, panels * panel, -127, 127);
  const auto scale = numbers<float>(random, panels * 16, 1, 9);
  const auto weight_sum = numbers<float>(random, panels * 16, -100, 100);
  const auto bias = numbers<float>(random, s.outputs, -50, 50);
  const std::int64_t pixels = s.rows.outputs * s.columns.outputs;
  const auto residual = numbers<std::uint8_t>(random, pixels * s.outputs, 0, 255);
  const std::vector<std::uint8_t> outside(
      static_cast<std::size_t>(std::max<std::int64_t>(s.channels, 64)), s.zero);
  std::vector<std::uint8_t> y(residual.size(), 77), band(cpu::int8_band_bytes);
  const std::int64_t y_row = s.columns.outputs * s.outputs;

  cpu::Int8ProductJob job{};
  job.x = {x.data(), row, s.channels, 1};
  job.filter = filter.data();
  job.panel = panel;
  job.runs = s.columns.taps;
  job.quads = s.channels / 4;
  job.outside = outside.data();
  job.outputs = s.outputs;
  job.rows = s.rows;
  job.columns = s.columns;
  job.band = band.data();
  job.finish.weight_scale = scale.data();
  job.finish.weight_sum = weight_sum.data();
  job.finish.bias = bias.data();
  job.finish.zero = s.zero;
  // Sums spread over most of the codes.
  job.finish.ratio = s.spread * 1e-3f / std::sqrt(static_cast<float>(panel) / 16);
  job.finish.inverse = 1;
  job.finish.base = 100;
  if (s.has_residual) job.finish.residual_codes = {residual.data(), y_row, s.outputs, 1};
  job.finish.residual_factor = 0.25f;
  job.finish.low = s.has_limits ? 3 : 0;
  job.finish.high = s.has_limits ? 250 : 255;
  job.finish.codes = {y.data(), y_row, s.outputs, 1};
  const std::int64_t half = s.rows.outputs / 2;
  product(job, {0, half, 0, s.columns.outputs, 0, s.outputs});
  product(job, {half, s.rows.outputs, 0, s.columns.outputs, 0, s.outputs});
  return y;
}

void check(Random& random, const TileSizes& s) {
  INFO(to_string(s));
  const auto seed = static_cast<std::uint64_t>(random.integer(1, 1 << 30));
  const bool is_same =
      run(s, seed, cpu::built::avx512_vnni::int8.product) == run(s, seed, cpu::amx::int8_product);
  CHECK(is_same);
}

WindowAxis axis(std::int64_t inputs, std::int64_t taps, std::int64_t stride, std::int64_t dilation,
                std::int64_t before, std::int64_t after) {
  const std::int64_t reach = (taps - 1) * dilation;
  return {inputs, (inputs + before + after - reach - 1) / stride + 1, taps, stride, dilation,
          before};
}

TEST_CASE("int8 tiles: images larger than the padded copy") {
  if (cpu::active_isa() != cpu::Isa::amx) return;
  Random random;
  // Some rows of outputs fit in a band; not even one does; strides leave planes.
  check(random, {256, 32, axis(30, 3, 1, 1, 1, 1), axis(90, 3, 1, 1, 1, 1), true, 9});
  check(random, {512, 16, axis(4, 3, 1, 1, 1, 1), axis(500, 3, 1, 1, 1, 1), false, 200});
  check(random, {256, 48, axis(40, 3, 2, 1, 1, 1), axis(80, 3, 2, 1, 1, 1), true, 1});
}

TEST_CASE("int8 tiles: rows of pixels, with results beyond what codes and integers hold") {
  if (cpu::active_isa() != cpu::Isa::amx) return;
  Random random;
  for (const float spread : {1.0f, 1e3f, 1e12f}) {
    for (const bool has_residual : {false, true}) {
      for (const bool has_limits : {false, true}) {
        const WindowAxis row = axis(random.integer(33, 300), 1, 1, 1, 0, 0);
        const auto zero = static_cast<std::uint8_t>(random.integer(0, 255));
        const std::int64_t outputs = 16 * random.integer(1, 12);
        check(random,
              {64, outputs, axis(2, 1, 1, 1, 0, 0), row, has_residual, zero, spread, has_limits});
      }
    }
  }
}

TEST_CASE("int8 tiles: random sizes") {
  if (cpu::active_isa() != cpu::Isa::amx) return;
  Random random;
  for (int round = 0; round < 150; ++round) {
    TileSizes s{};
    s.channels = 4 * random.integer(4, 40);
    s.outputs = random.integer(0, 2) == 0 ? random.integer(1, 90) : 32 * random.integer(1, 4);
    const std::int64_t taps = random.integer(1, 4), stride = random.integer(1, 3);
    const std::int64_t dilation = random.integer(1, 3), reach = (taps - 1) * dilation;
    const auto some_axis = [&](std::int64_t before, std::int64_t after) {
      const std::int64_t least = std::max<std::int64_t>(reach + 1 - before - after, 1);
      return axis(least + random.integer(0, 40), taps, stride, dilation, before, after);
    };
    s.rows = some_axis(random.integer(0, reach), random.integer(0, reach));
    do {
      s.columns = some_axis(random.integer(0, std::min(reach, stride)), random.integer(0, reach));
    } while (!cpu::reaches_out_at_ends_only(s.columns));
    s.has_residual = random.integer(0, 1) == 0;
    s.zero = static_cast<std::uint8_t>(random.integer(0, 255));
    s.has_limits = random.integer(0, 1) == 0;
    check(random, s);
  }
}

}  // namespace
}  // namespace tenon::testing
