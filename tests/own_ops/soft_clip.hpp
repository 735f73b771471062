// An op that is not the library's, and a kernel for it.
#pragma once

#include <tenon/kernel.hpp>
#include <tenon/testkit.hpp>

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tenon::testing {

/// y = x / (1 + |x| / limit), element by element, of f32.
struct SoftClip {
  static constexpr std::string_view name = "soft_clip";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  double limit = 1;
  static constexpr auto fields = FieldList{field("limit", &SoftClip::limit)};

  Shape infer(std::span<const Shape> in) const {
    if (in[0].dtype() != DType::f32) fail(Errc::unsupported_dtype, name, "takes f32");
    return in[0];
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const double x = load_as_double(DType::f32, in[0].at(index));
      store_double(DType::f32, out.at(index), x / (1 + std::abs(x) / limit));
    });
  }
};

inline std::optional<std::string> needs_dense_f32(const Step& step) {
  for (const Operand& input : step.inputs) {
    if (!input.is_contiguous() || input.shape.dtype() != DType::f32) return "not dense f32";
  }
  return std::nullopt;
}

inline void soft_clip(double limit, const KernelCall& call) {
  const auto [begin, end] = call.share(call.output.shape.elements());
  for (std::int64_t i = begin; i < end; ++i) {
    const double x = static_cast<double>(call.inputs[0].as<float>()[i]);
    call.output.as<float>()[i] = static_cast<float>(x / (1 + std::abs(x) / limit));
  }
}

}  // namespace tenon::testing
