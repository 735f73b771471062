#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon {

/// Symmetric quantisation: real = q * scale * normratio, without a zero point. Each factor is one
/// number for the whole array, or one per index of `axis`. normratio is the part that can be folded
/// into weights; 1 where that does not matter.
struct QuantParams {
  std::vector<float> scale{1.0f};
  std::vector<float> normratio{1.0f};
  char axis = 'C';  ///< the axis that vectors longer than 1 run along, as Layout names it

  bool is_per_channel() const noexcept { return scale.size() > 1 || normratio.size() > 1; }

  /// scale * normratio of one channel; any number when there is only one of each.
  double factor(std::int64_t channel = 0) const noexcept {
    const auto at = [channel](const std::vector<float>& factors) {
      return static_cast<double>(
          factors[factors.size() > 1 ? static_cast<std::size_t>(channel) : 0]);
    };
    return at(scale) * at(normratio);
  }

  /// Throws Errc::bad_argument unless each factor is finite and positive, and each vector has one
  /// entry or `channels` entries.
  void check(std::int64_t channels) const;

  friend bool operator==(const QuantParams& a, const QuantParams& b) = default;
};

/// "scale 0.0078125", "scale of 64 channels C, normratio 1.5".
std::string to_string(const QuantParams& params);

}  // namespace tenon
