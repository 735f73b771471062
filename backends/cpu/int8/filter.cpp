#include "filter.hpp"

#include "../convolution/filter_recipe.hpp"
#include "../integer_math.hpp"
#include "../thread_pool.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

constexpr std::int64_t quad_block = 3 * 4 * 64;  // bytes for 64 channels

/// Calls use(address, tap row, tap column, channel) for the weights of one output.
template <class Use>
void for_each_weight(const FilterShape& shape, const HostView& w, std::int64_t output, Use use) {
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      const std::byte* line = w.data + output * w.strides[0] + c * w.strides[1] + r * w.strides[2];
      for (std::int64_t s = 0; s < shape.columns; ++s) use(line + s * w.strides[3], r, s, c);
    }
  }
}

float load_float(const std::byte* weight) { return *reinterpret_cast<const float*>(weight); }

}  // namespace

PackedInt8Filter::Parts PackedInt8Filter::parts_of(const Int8FilterForm& form) noexcept {
  const std::int64_t weights = form.panels() * form.panel() * (form.shape.is_depthwise() ? 4 : 1);
  const std::int64_t floats = form.panels() * 64;  // a scale or a sum for each output
  // Padding: a vector that begins inside of a block reads behind it.
  const std::int64_t quads =
      form.has_quads() ? ceil_div(form.panels(), 4) * quad_block + 64 : std::int64_t{0};
  const std::int64_t begin = round_up(weights, 64);
  const auto at = [&](std::int64_t offset) { return static_cast<std::size_t>(begin + offset); };
  return {at(0), at(floats), at(2 * floats), at(2 * floats + quads)};
}

std::size_t PackedInt8Filter::packed_bytes(const Int8FilterForm& form) noexcept {
  return parts_of(form).end;
}

PackedInt8Filter::PackedInt8Filter(const Int8FilterForm& form)
    : form_(form),
      parts_(parts_of(form)),
      bytes_(parts_.end),
      own_(bytes_.own()),
      memory_(bytes_.data()) {
  std::memset(own_ + parts_.quads, 0, parts_.end - parts_.quads);
}

PackedInt8Filter::PackedInt8Filter(const Int8FilterForm& form, PreparedCache::Bytes kept)
    : form_(form), parts_(parts_of(form)), bytes_(std::move(kept)), memory_(bytes_.data()) {}

PackedInt8Filter::PackedInt8Filter(const Int8FilterForm& form, std::byte* memory) noexcept
    : form_(form),
      parts_(parts_of(form)),
      bytes_(PreparedCache::Bytes{}),
      own_(memory),
      memory_(memory) {}

void PackedInt8Filter::pack(const HostView& w, int thread, int threads) noexcept {
  const FilterShape& shape = form_.shape;
  const std::int64_t panel_bytes = form_.panel() * (shape.is_depthwise() ? 4 : 1);
  const Range panels = split(form_.panels(), thread, threads);
  for (std::int64_t p = panels.begin; p < panels.end; ++p) {
    const std::int64_t first = p % shape.group_panels() * 16;
    const std::int64_t count = std::min<std::int64_t>(16, shape.group_outputs() - first);
    const std::int64_t output = p / shape.group_panels() * shape.group_outputs() + first;
    std::memset(own_ + p * panel_bytes, 0, static_cast<std::size_t>(panel_bytes));
    std::memset(own_ + parts_.scales + p * 64, 0, 64);
    std::memset(own_ + parts_.sums + p * 64, 0, 64);
    for (std::int64_t lane = 0; lane < count; ++lane) {
      form_.codes ? pack_codes(w, p, lane, output + lane) : pack_output(w, p, lane, output + lane);
    }
  }
}

void PackedInt8Filter::pack_output(const HostView& w, std::int64_t panel, std::int64_t lane,
                                   std::int64_t output) noexcept {
  const FilterShape& shape = form_.shape;
  float largest = 0;
  for_each_weight(shape, w, output, [&](const std::byte* weight, auto...) {
    const float value = load_float(weight);
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  });
  const float scale = largest / static_cast<float>(form_.limit);
  const float inverse = scale > 0 ? 1 / scale : 0;
  const auto limit = static_cast<float>(form_.limit);
  std::int64_t sum = 0;
  for_each_weight(shape, w, output,
                  [&](const std::byte* weight, std::int64_t r, std::int64_t s, std::int64_t c) {
                    // A scale so small that its inverse is infinite makes a NaN of 0: the
                    // comparison drops it.
                    const float scaled = std::nearbyint(load_float(weight) * inverse);
                    const float rounded = scaled == scaled ? std::clamp(scaled, -limit, limit) : 0;
                    sum += static_cast<std::int64_t>(rounded);
                    set_weight(panel, lane, r, s, c, rounded);
                  });
  set_scale(panel, lane, scale, sum);
}

void PackedInt8Filter::pack_codes(const HostView& w, std::int64_t panel, std::int64_t lane,
                                  std::int64_t output) noexcept {
  const bool is_signed = w.shape.dtype() == DType::i8;
  std::int64_t sum = 0;
  for_each_weight(form_.shape, w, output,
                  [&](const std::byte* weight, std::int64_t r, std::int64_t s, std::int64_t c) {
                    const int code = is_signed ? int{static_cast<std::int8_t>(*weight)}
                                               : int{static_cast<std::uint8_t>(*weight)} - 128;
                    sum += code;
                    set_weight(panel, lane, r, s, c, static_cast<float>(code));
                  });
  set_scale(panel, lane, 1, sum);
}

void PackedInt8Filter::set_weight(std::int64_t panel, std::int64_t lane, std::int64_t r,
                                  std::int64_t s, std::int64_t c, float value) noexcept {
  const FilterShape& shape = form_.shape;
  const std::int64_t tap = r * shape.columns + s;
  if (shape.is_depthwise()) {
    auto* to = reinterpret_cast<float*>(own_) + panel * form_.panel();
    to[tap * 16 + lane] = value;
    if (!form_.has_quads()) return;
    auto* quads = reinterpret_cast<std::int8_t*>(own_ + parts_.quads) + panel / 4 * quad_block;
    quads[(s * 4 + lane / 4) * 64 + panel % 4 * 16 + lane % 4 * 4 + r] =
        static_cast<std::int8_t>(value);
    return;
  }
  auto* to = reinterpret_cast<std::int8_t*>(own_) + panel * form_.panel();
  const std::int64_t run = form_.joined ? r : tap;
  const std::int64_t at = form_.joined ? s * shape.channels + c : c;
  to[(run * form_.quads() + at / 4) * 64 + lane * 4 + at % 4] = static_cast<std::int8_t>(value);
}

void PackedInt8Filter::set_scale(std::int64_t panel, std::int64_t lane, float scale,
                                 std::int64_t sum) noexcept {
  reinterpret_cast<float*>(own_ + parts_.scales)[panel * 16 + lane] = scale;
  reinterpret_cast<float*>(own_ + parts_.sums)[panel * 16 + lane] = static_cast<float>(sum);
}

std::shared_ptr<const Recipe> int8_filter_recipe(const Int8FilterForm& form) {
  return std::make_shared<FilterRecipe<PackedInt8Filter, Int8FilterForm>>(
      form, fmt::format("int8 filter 1 {} in {}, joined {}, to {}, codes {}",
                        to_string(form.shape.file_shape()), form.shape.groups, form.joined,
                        form.limit, form.codes));
}

}  // namespace tenon::cpu
