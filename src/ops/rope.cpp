#include "ops/rows.hpp"

#include <tenon/ops/operators.hpp>
#include <tenon/ops/rope.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(rope, Rope);

namespace {

constexpr double full_turn = 2 * std::numbers::pi;

void require_positive(std::string_view what, double value) {
  if (!(value > 0) || !std::isfinite(value)) {
    fail(Errc::bad_attribute, Rope::name, fmt::format("{} is {}, must be positive", what, value));
  }
}

void check_scaling(const Rope& op) {
  const std::string_view word = op.scaling.text();
  require_positive("theta", op.theta);
  if (op.attention_factor != 0) require_positive("attention_factor", op.attention_factor);
  if (word.empty() || word == "none") return;
  if (word != "linear" && word != "llama3" && word != "yarn") {
    fail(Errc::bad_attribute, Rope::name,
         fmt::format("scaling '{}' is none of none, linear, llama3, yarn", word));
  }
  require_positive("factor", op.factor);
  if (word == "linear") return;
  require_positive("original_context", static_cast<double>(op.original_context));
  if (word == "llama3") {
    require_positive("low_freq_factor", op.low_freq_factor);
    require_positive("high_freq_factor", op.high_freq_factor);
    if (op.high_freq_factor <= op.low_freq_factor) {
      fail(Errc::bad_attribute, Rope::name,
           fmt::format("high_freq_factor {} does not exceed low_freq_factor {}",
                       op.high_freq_factor, op.low_freq_factor));
    }
  } else {
    require_positive("beta_fast", op.beta_fast);
    require_positive("beta_slow", op.beta_slow);
    if (op.theta == 1) fail(Errc::bad_attribute, Rope::name, "yarn needs a theta other than 1");
  }
}

void check_sections(const Rope& op, std::int64_t rotated) {
  std::int64_t left = is_static(rotated) ? rotated / 2 : unknown_dim;
  for (const std::int64_t section : op.sections) {
    if (section < 0 || (is_static(left) && section > left)) {
      fail(Errc::bad_attribute, Rope::name,
           fmt::format("a section of {} where {} pairs are left", section, left));
    }
    if (is_static(left)) left -= section;
  }
  if (!op.sections.empty() && is_static(rotated) && left != 0) {
    fail(Errc::bad_attribute, Rope::name,
         fmt::format("sections leave {} of {} pairs", left, rotated / 2));
  }
}

double scale_llama3(const Rope& op, double frequency) {
  const double turns = static_cast<double>(op.original_context) * frequency / full_turn;  // c / w
  if (turns > op.high_freq_factor) return frequency;
  if (turns < op.low_freq_factor) return frequency / op.factor;
  const double share = (turns - op.low_freq_factor) / (op.high_freq_factor - op.low_freq_factor);
  return (1 - share) * frequency / op.factor + share * frequency;
}

void scale_yarn(const Rope& op, std::vector<double>& frequencies) {
  const double dims = 2 * static_cast<double>(frequencies.size());
  const auto context = static_cast<double>(op.original_context);
  const auto turn = [&](double rotations) {
    return dims * std::log(context / (full_turn * rotations)) / (2 * std::log(op.theta));
  };
  const double low = std::max(std::floor(turn(op.beta_fast)), 0.0);
  double high = std::min(std::ceil(turn(op.beta_slow)), dims - 1);
  if (high == low) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = ramp * frequencies[i] / op.factor + (1 - ramp) * frequencies[i];
  }
}

}  // namespace

std::vector<double> Rope::frequencies(std::int64_t rotated_dims) const {
  std::vector<double> result(static_cast<std::size_t>(rotated_dims / 2));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(rotated_dims));
  }
  const std::string_view word = scaling.text();
  if (word == "linear") {
    for (double& frequency : result) frequency /= factor;
  } else if (word == "llama3") {
    for (double& frequency : result) frequency = scale_llama3(*this, frequency);
  } else if (word == "yarn") {
    scale_yarn(*this, result);
  }
  return result;
}

std::vector<int> Rope::section_of_pairs(std::int64_t pairs) const {
  std::vector<int> result(static_cast<std::size_t>(pairs), 0);
  const auto count = static_cast<std::int64_t>(sections.size());
  if (count == 0) return result;
  std::int64_t end = sections[0], section = 0;
  for (std::int64_t i = 0; i < pairs; ++i) {
    if (sections_interleaved) {
      section = i % count;
      if (i >= count * sections[static_cast<std::size_t>(section)]) section = 0;
    } else {
      while (i >= end && section + 1 < count) end += sections[static_cast<std::size_t>(++section)];
    }
    result[static_cast<std::size_t>(i)] = static_cast<int>(section);
  }
  return result;
}

double Rope::magnitude() const {
  if (attention_factor != 0) return attention_factor;
  return scaling.text() == "yarn" && factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}

Shape Rope::infer(std::span<const Shape> in) const {
  const std::size_t expected = has_freq_factors ? 3 : 2;
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  const Shape& x = in[0];
  const Shape& positions = in[1];
  constexpr std::array<std::string_view, 3> names{"x", "positions", "freq_factors"};
  const std::string operands = operands_text(names, in);
  require_rank(name, "x", x, 4);  // C2
  const int least = sections.empty() ? 1 : 2;
  if (positions.rank() != least && positions.rank() != least + 1) {
    fail(Errc::shape_mismatch, name,
         fmt::format("positions need rank {} or {}: {}", least, least + 1, operands));
  }
  require_floating(name, x);  // C3
  require_dtype(name, "positions", positions, DType::i32);
  common_axis(name, x, 1, positions, positions.rank() - 1, "the number of steps", operands);  // C4
  if (positions.rank() == least + 1) common_axis(name, x, 0, positions, 0, "the batch", operands);
  const auto section_count = static_cast<std::int64_t>(sections.size());
  if (section_count > 0 && !sizes_agree(positions[positions.rank() - 2], section_count)) {
    fail(Errc::shape_mismatch, name,
         fmt::format("{} sections need as many positions: {}", section_count, operands));
  }
  const bool fits = dims >= 0 && dims % 2 == 0 && (!is_static(x[3]) || dims <= x[3]);
  if (!fits || (dims == 0 && is_static(x[3]) && x[3] % 2 != 0)) {  // C5
    fail(Errc::bad_attribute, name,
         fmt::format("dims {} must be even and within the last axis: {}", dims, operands));
  }
  check_scaling(*this);  // C6
  check_sections(*this, dims == 0 ? x[3] : dims);
  if (has_freq_factors) {
    require_rank(name, "freq_factors", in[2], 1);
    require_dtype(name, "freq_factors", in[2], DType::f32);
    const std::int64_t rotated = dims == 0 ? x[3] : dims;
    if (is_static(rotated) && is_static(in[2][0]) && in[2][0] != rotated / 2) {
      fail(Errc::shape_mismatch, name,
           fmt::format("{} dims need {} freq_factors: {}", rotated, rotated / 2, operands));
    }
  }
  return x;
}

void Rope::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& x = in[0];
  const HostView& positions = in[1];
  const DType dtype = x.shape.dtype();
  const std::int64_t rotated = dims == 0 ? x.shape[3] : dims;
  const std::int64_t pairs = rotated / 2;
  const double scale = magnitude();
  std::vector<double> frequency = frequencies(rotated);
  if (has_freq_factors) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      frequency[static_cast<std::size_t>(i)] /=
          load_as_double(DType::f32, in[2].data + i * in[2].strides[0]);
    }
  }

  const std::vector<int> section = section_of_pairs(pairs);
  const int batch_axes = positions.shape.rank() - (sections.empty() ? 1 : 2);
  const std::int64_t section_step =
      sections.empty() ? 0 : positions.strides[static_cast<std::size_t>(batch_axes)];
  const std::int64_t step = positions.strides[static_cast<std::size_t>(positions.shape.rank() - 1)];

  std::vector<double> row(static_cast<std::size_t>(x.shape[3]));
  const Shape heads = x.shape.without_tags().without_axis(3);
  for_each_index(heads, [&](std::span<const std::int64_t> index) {
    const std::byte* const first_position =
        positions.data + (batch_axes == 1 ? index[0] * positions.strides[0] : 0) + index[1] * step;
    read_row(dtype, slice_at(x, index), x.strides[3], row);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const auto position = static_cast<double>(load_as_int64(
          DType::i32, first_position + section[static_cast<std::size_t>(i)] * section_step));
      const double angle = position * frequency[static_cast<std::size_t>(i)];
      double& first = row[static_cast<std::size_t>(interleaved ? 2 * i : i)];
      double& second = row[static_cast<std::size_t>(interleaved ? 2 * i + 1 : i + pairs)];
      const double cosine = scale * std::cos(angle);
      const double sine = scale * std::sin(angle);
      const double turned = first * cosine - second * sine;
      second = second * cosine + first * sine;
      first = turned;
    }
    write_row(row, dtype, slice_at(out, index), out.strides[3]);
  });
}

// Rotations by the opposite angle are the transposed matrix.
std::vector<Tensor> Rope::gradient(const Backward& at) const {
  const Tensor turned_back =
      tenon::rope(at.upstream, -at.inputs[1], *this, has_freq_factors ? at.inputs[2] : Tensor());
  std::vector<Tensor> result(at.inputs.size());
  result[0] = turned_back;
  return result;
}

Tensor rope(const Tensor& x, const Tensor& positions, const Rope& options,
            const Tensor& freq_factors, const std::source_location& where) {
  Rope op = options;
  op.has_freq_factors = !freq_factors.is_empty();
  return op.has_freq_factors ? record(op, {x, positions, freq_factors}, where)
                             : record(op, {x, positions}, where);
}

}  // namespace tenon
