#include "filter.hpp"

#include "../../integer_math.hpp"
#include "../../thread_pool.hpp"
#include "../filter_recipe.hpp"

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

PackedInt8Filter::Places PackedInt8Filter::places_of(const Int8FilterForm& form) noexcept {
  Places places{};
  places.scales = round_up(form.panels() * form.panel() * (form.shape.is_depthwise() ? 4 : 1), 64);
  places.sums = places.scales + form.panels() * 64;
  places.quads = places.sums + form.panels() * 64;
  // Padding: a vector that begins inside of a block reads behind it.
  const std::int64_t quads = form.has_quads() ? ceil_div(form.panels(), 4) * quad_block + 64 : 0;
  places.end = places.quads + quads;
  return places;
}

std::int64_t PackedInt8Filter::bytes_for(const Int8FilterForm& form) noexcept {
  return places_of(form).end;
}

PackedInt8Filter::PackedInt8Filter(const Int8FilterForm& form, std::byte* memory) noexcept
    : form_(form) {
  lie_in(memory);
}

PackedInt8Filter::PackedInt8Filter(const Int8FilterForm& form)
    : form_(form), owned_(static_cast<std::size_t>(bytes_for(form))) {
  lie_in(owned_.data());
  if (!form.has_quads()) return;
  const Places places = places_of(form);
  std::memset(quads_, 0, static_cast<std::size_t>(places.end - places.quads));
}

void PackedInt8Filter::lie_in(std::byte* memory) noexcept {
  const Places places = places_of(form_);
  weights_ = memory;
  scales_ = memory + places.scales;
  sums_ = memory + places.sums;
  quads_ = form_.has_quads() ? memory + places.quads : nullptr;
}

void PackedInt8Filter::pack(const HostView& w, int thread, int threads) noexcept {
  const FilterShape& shape = form_.shape;
  const std::int64_t panel_bytes = form_.panel() * (shape.is_depthwise() ? 4 : 1);
  const Range panels = split(form_.panels(), thread, threads);
  for (std::int64_t p = panels.begin; p < panels.end; ++p) {
    const std::int64_t first = p % shape.group_panels() * 16;
    const std::int64_t count = std::min<std::int64_t>(16, shape.group_outputs() - first);
    const std::int64_t output = p / shape.group_panels() * shape.group_outputs() + first;
    std::memset(weights_ + p * panel_bytes, 0, static_cast<std::size_t>(panel_bytes));
    std::memset(scales_ + p * 64, 0, 64);
    std::memset(sums_ + p * 64, 0, 64);
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
    auto* to = reinterpret_cast<float*>(weights_) + panel * form_.panel();
    to[tap * 16 + lane] = value;
    if (!form_.has_quads()) return;
    auto* quads = reinterpret_cast<std::int8_t*>(quads_) + panel / 4 * quad_block;
    quads[(s * 4 + lane / 4) * 64 + panel % 4 * 16 + lane % 4 * 4 + r] =
        static_cast<std::int8_t>(value);
    return;
  }
  auto* to = reinterpret_cast<std::int8_t*>(weights_) + panel * form_.panel();
  const std::int64_t run = form_.joined ? r : tap;
  const std::int64_t at = form_.joined ? s * shape.channels + c : c;
  to[(run * form_.quads() + at / 4) * 64 + lane * 4 + at % 4] = static_cast<std::int8_t>(value);
}

void PackedInt8Filter::set_scale(std::int64_t panel, std::int64_t lane, float scale,
                                 std::int64_t sum) noexcept {
  reinterpret_cast<float*>(scales_)[panel * 16 + lane] = scale;
  reinterpret_cast<float*>(sums_)[panel * 16 + lane] = static_cast<float>(sum);
}

std::shared_ptr<const Recipe> int8_filter_recipe(const Int8FilterForm& form) {
  return std::make_shared<FilterRecipe<PackedInt8Filter, Int8FilterForm>>(
      form, fmt::format("int8 filter {} in {}, joined {}, to {}, codes {}",
                        to_string(form.shape.file_shape()), form.shape.groups, form.joined,
                        form.limit, form.codes));
}

}  // namespace tenon::cpu
