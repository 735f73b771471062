#include "ops/builder.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/dot.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace {

constexpr std::string_view op_name = "dot";

using Axes = std::vector<AxisRef>;

/// The roles of one operand's axes, by index.
struct Roles {
  Axes batch, rest, contract;
};

/// Permutes `tensor`'s axes into `order` and removes their tags: roles are positional from here on.
Tensor arranged(const Tensor& tensor, const Axes& order, const std::source_location& where) {
  const Tensor plain =
      tensor.shape().has_tags() ? tensor.with_tags(std::span<const Name>()) : tensor;
  const bool is_identity = std::ranges::is_sorted(order, {}, &AxisRef::index);
  return is_identity ? plain : permute(plain, std::span<const AxisRef>(order), where);
}

Axes joined(std::initializer_list<Axes> parts) {
  Axes all;
  for (const Axes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Axes range(int begin, int end) {
  Axes axes;
  for (int i = begin; i < end; ++i) axes.emplace_back(i);
  return axes;
}

int count(const Axes& axes) noexcept { return static_cast<int>(axes.size()); }

Tensor with_ones(Tensor tensor, int at, int ones, const std::source_location& where) {
  for (int i = 0; i < ones; ++i) tensor = unsqueeze(tensor, at, {}, where);
  return tensor;
}

/// The contracted axes, `contracted` of them from `first` on, as one axis.
Tensor with_one_contracted(const Tensor& tensor, int first, int contracted,
                           const std::source_location& where) {
  if (contracted == 1) return tensor;
  if (contracted == 0) return with_ones(tensor, first, 1, where);
  return merge_axes(tensor, first, first + contracted - 1, {}, where);
}

class Dot {
 public:
  Dot(const Tensor& a, const Tensor& b, const std::source_location& where)
      : a_(a), b_(b), where_(where) {}

  void add(const AxisPair& pair, bool is_batch) {
    const int i = axis_of(a_, pair.a);
    const int j = axis_of(b_, pair.b);
    if (used_a_[static_cast<std::size_t>(i)] || used_b_[static_cast<std::size_t>(j)]) {
      fail(Errc::bad_argument, "an axis is named twice");
    }
    used_a_[static_cast<std::size_t>(i)] = used_b_[static_cast<std::size_t>(j)] = true;
    if (!sizes_agree(a_.shape()[i], b_.shape()[j])) {
      fail(Errc::shape_mismatch, fmt::format("axis {} of a and axis {} of b differ in size", i, j));
    }
    if (is_batch) tags_.push_back(batch_tag(a_.shape().tag(i), b_.shape().tag(j)));
    (is_batch ? roles_a_.batch : roles_a_.contract).emplace_back(i);
    (is_batch ? roles_b_.batch : roles_b_.contract).emplace_back(j);
  }

  /// Matrices [.., M, K] and [.., K, N], with M and N the last remaining axes; other remaining axes
  /// lead, and broadcast over axes of size 1 in the other operand. So no size needs to be known.
  Tensor build() {
    gather_rest(a_, used_a_, roles_a_.rest);
    gather_rest(b_, used_b_, roles_b_.rest);
    check_result();
    const int batch = count(roles_a_.batch);
    const int contracted = count(roles_a_.contract);
    const int rest_a = count(roles_a_.rest);
    const int rest_b = count(roles_b_.rest);
    const int lead_a = std::max(rest_a - 1, 0);
    const int lead_b = std::max(rest_b - 1, 0);

    Tensor a = arranged(a_, joined({roles_a_.batch, roles_a_.rest, roles_a_.contract}), where_);
    a = with_one_contracted(a, batch + rest_a, contracted, where_);
    if (rest_a == 0) a = with_ones(a, batch, 1, where_);
    a = with_ones(a, batch + lead_a, lead_b, where_);

    const auto columns = roles_b_.rest.begin() + lead_b;
    Tensor b = arranged(b_,
                        joined({roles_b_.batch, Axes(roles_b_.rest.begin(), columns),
                                roles_b_.contract, Axes(columns, roles_b_.rest.end())}),
                        where_);
    b = with_one_contracted(b, batch + lead_b, contracted, where_);
    if (rest_b == 0) b = with_ones(b, batch + 1, 1, where_);
    if (batch > 0) b = with_ones(b, batch, lead_a, where_);  // without: broadcasting adds them

    // [batch, rest of a but one, rest of b but one, M, N]
    Tensor y = matmul(a, b, where_);
    const int rows = batch + lead_a + lead_b;
    if (lead_b > 0) {
      const Axes order = joined({range(0, batch + lead_a), range(rows, rows + 1),
                                 range(batch + lead_a, rows), range(rows + 1, rows + 2)});
      y = permute(y, std::span<const AxisRef>(order), where_);
    }
    if (rest_b == 0) y = squeeze(y, -1, where_);
    if (rest_a == 0) y = squeeze(y, batch, where_);
    const bool has_tags = std::ranges::any_of(tags_, [](Name tag) { return !tag.empty(); });
    return has_tags ? y.with_tags(std::span<const Name>(tags_)) : y;
  }

 private:
  [[noreturn]] void fail(Errc code, std::string_view message) const {
    fail_at(where_, code, op_name,
            fmt::format("{}: a {}, b {}", message, to_string(a_.shape(where_)),
                        to_string(b_.shape(where_))));
  }

  int axis_of(const Tensor& tensor, const AxisRef& axis) const {
    try {
      return tensor.shape(where_).axis(axis);
    } catch (const Error& error) {
      fail(error.code(), error.message());
    }
  }

  Name batch_tag(Name a, Name b) const {
    if (!a.empty() && !b.empty() && a != b) {
      fail(Errc::shape_mismatch, fmt::format("a batch axis is '{}' and '{}'", a.text(), b.text()));
    }
    return a.empty() ? b : a;
  }

  void gather_rest(const Tensor& tensor, const std::array<bool, max_rank>& used, Axes& rest) {
    for (int i = 0; i < tensor.rank(); ++i) {
      if (used[static_cast<std::size_t>(i)]) continue;
      rest.emplace_back(i);
      tags_.push_back(tensor.shape().tag(i));
    }
  }

  void check_result() const {
    if (tags_.size() > max_rank) {
      fail(Errc::bad_shape, fmt::format("the result would have {} axes", tags_.size()));
    }
    for (std::size_t i = 0; i < tags_.size(); ++i) {
      if (tags_[i].empty() || std::count(tags_.begin(), tags_.end(), tags_[i]) == 1) continue;
      fail(Errc::shape_mismatch,
           fmt::format("two axes of the result would be '{}', rename one", tags_[i].text()));
    }
  }

  Tensor a_, b_;
  std::source_location where_;
  Roles roles_a_, roles_b_;
  std::array<bool, max_rank> used_a_{}, used_b_{};
  std::vector<Name> tags_;  ///< of the result: batch, rest of a, rest of b
};

}  // namespace

Tensor dot(const Tensor& a, const Tensor& b, std::initializer_list<AxisPair> contract,
           std::initializer_list<AxisPair> batch, const std::source_location& where) {
  return dot(a, b, std::span<const AxisPair>(contract.begin(), contract.size()),
             std::span<const AxisPair>(batch.begin(), batch.size()), where);
}

Tensor dot(const Tensor& a, const Tensor& b, std::span<const AxisPair> contract,
           std::span<const AxisPair> batch, const std::source_location& where) {
  Dot builder(a, b, where);
  for (const AxisPair& pair : batch) builder.add(pair, true);
  for (const AxisPair& pair : contract) builder.add(pair, false);
  return builder.build();
}

Tensor dot(const Tensor& a, const Tensor& b, std::initializer_list<Name> contract,
           std::initializer_list<Name> batch, const std::source_location& where) {
  Dot builder(a, b, where);
  for (const Name tag : batch) builder.add({tag, tag}, true);
  for (const Name tag : contract) builder.add({tag, tag}, false);
  return builder.build();
}

Tensor dot(const Tensor& a, const Tensor& b, Name contract, const std::source_location& where) {
  return dot(a, b, {contract}, {}, where);
}

}  // namespace tenon
