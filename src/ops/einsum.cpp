#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/support.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/bitwise.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/einsum.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/slice.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tenon {
namespace {

Tensor without_tags(const Tensor& x, const std::source_location& where) {
  return x.shape(where).has_tags() ? x.with_tags(std::span<const Name>(), where) : x;
}

/// The axes in this order; x itself where that is the one they have.
Tensor in_order(const Tensor& x, const std::vector<AxisRef>& order,
                const std::source_location& where) {
  if (std::ranges::is_sorted(order, {}, &AxisRef::index)) return x;
  return permute(x, std::span<const AxisRef>(order), where);
}

/// Letters are themselves; axes of `...` are 128 + their number from the innermost one.
using Label = unsigned char;
using Labels = std::basic_string<Label>;
constexpr Label first_unnamed = 128;
constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Einsum {
 public:
  Einsum(std::string_view equation, std::span<const Tensor> operands,
         const std::source_location& where)
      : where_(where) {
    for (const char c : equation) {
      if (c != ' ') equation_ += c;
    }
    for (const Tensor& operand : operands) terms_.push_back({without_tags(operand, where), {}});
    shapes_.reserve(operands.size());
    for (const Tensor& operand : operands) shapes_.push_back(operand.shape(where));
  }

  Tensor build() {
    parse();
    for (Term& term : terms_) take_diagonals(term);
    find_sizes();
    for (Term& term : terms_) drop_ones(term);
    while (terms_.size() > 1) contract_cheapest();
    Term last = std::move(terms_.front());
    sum_out(last, [&](Label label) { return output_.find(label) == Labels::npos; });
    return in_order(last.tensor, order_of(last, output_), where_);
  }

 private:
  struct Term {
    Tensor tensor;
    Labels labels;
  };

  [[noreturn]] void fail(Errc code, std::string_view message) const {
    fail_at(where_, code, "einsum",
            fmt::format("{}: \"{}\" of {}", message, equation_, list_shapes(shapes_)));
  }

  void parse() {
    const std::size_t arrow = equation_.find("->");
    const std::string_view left = std::string_view(equation_).substr(0, arrow);
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0;;) {
      const std::size_t comma = left.find(',', begin);
      parts.push_back(left.substr(begin, comma - begin));
      if (comma == std::string_view::npos) break;
      begin = comma + 1;
    }
    if (parts.size() != terms_.size()) fail(Errc::bad_argument, "not one part per operand");
    int unnamed = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const int rank = shapes_[i].rank();
      terms_[i].labels = labels_of(parts[i], rank);
      if (std::cmp_not_equal(terms_[i].labels.size(), rank)) {
        fail(Errc::shape_mismatch, fmt::format("operand {} has not one letter per axis", i));
      }
      unnamed =
          std::max(unnamed, static_cast<int>(std::ranges::count_if(
                                terms_[i].labels, [](Label l) { return l >= first_unnamed; })));
    }
    if (arrow == std::string::npos) return imply_output(unnamed);
    const std::string_view right = std::string_view(equation_).substr(arrow + 2);
    const std::size_t letters = static_cast<std::size_t>(std::ranges::count_if(right, is_letter));
    const bool has_dots = right.find("...") != std::string_view::npos;
    output_ = labels_of(right, static_cast<int>(letters) + (has_dots ? unnamed : 0));
    for (std::size_t i = 0; i < output_.size(); ++i) {
      if (output_.find(output_[i], i + 1) != Labels::npos) {
        fail(Errc::bad_argument, "a letter of the result twice");
      }
      if (std::ranges::none_of(terms_, [&](const Term& term) {
            return term.labels.find(output_[i]) != Labels::npos;
          })) {
        fail(Errc::bad_argument, "a letter of the result that no operand has");
      }
    }
  }

  /// The labels of a part that stands for `rank` axes.
  Labels labels_of(std::string_view part, int rank) const {
    Labels labels;
    const auto letters = std::ranges::count_if(part, is_letter);
    bool has_dots = false;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (is_letter(part[i])) {
        labels += static_cast<Label>(part[i]);
      } else if (part.substr(i, 3) == "..." && !has_dots) {
        has_dots = true;
        i += 2;
        for (auto k = rank - letters; k > 0; --k) {
          labels += static_cast<Label>(first_unnamed + k - 1);
        }
      } else {
        fail(Errc::bad_argument, fmt::format("'{}' where a letter should be", part[i]));
      }
    }
    return labels;
  }

  void imply_output(int unnamed) {
    for (int k = unnamed; k > 0; --k) output_ += static_cast<Label>(first_unnamed + k - 1);
    std::map<Label, int> uses;
    for (const Term& term : terms_) {
      for (const Label label : term.labels) ++uses[label];
    }
    for (const auto& [label, count] : uses) {
      if (label < first_unnamed && count == 1) output_ += label;
    }
  }

  void take_diagonals(Term& term) const {
    for (std::size_t i = 0; i < term.labels.size();) {
      const Label label = term.labels[i];
      const std::size_t j = term.labels.find(label, i + 1);
      if (j == Labels::npos) {
        ++i;
        continue;
      }
      const Shape shape = term.tensor.shape();
      if (!is_static(shape[static_cast<int>(i)]) ||
          shape[static_cast<int>(i)] != shape[static_cast<int>(j)]) {
        fail(Errc::shape_mismatch, "sizes of a diagonal differ or are not known");
      }
      term.tensor = diagonal(term.tensor, 0, static_cast<int>(i), static_cast<int>(j), where_);
      term.labels.erase(j, 1);
      term.labels.erase(i, 1);
      term.labels += label;
    }
  }

  void find_sizes() {
    for (const Term& term : terms_) {
      for (std::size_t i = 0; i < term.labels.size(); ++i) {
        const std::int64_t size = term.tensor.shape()[static_cast<int>(i)];
        const auto [entry, is_new] = sizes_.try_emplace(term.labels[i], size);
        if (is_new || size == 1) continue;
        if (entry->second == 1) {
          entry->second = size;
        } else if (!sizes_agree(entry->second, size)) {
          fail(Errc::shape_mismatch, "sizes of a letter differ");
        } else {
          entry->second = known_size(entry->second, size);
        }
      }
    }
  }

  /// A size of 1 where other operands have more: the operand does not depend on that axis.
  void drop_ones(Term& term) const {
    for (std::size_t i = term.labels.size(); i-- > 0;) {
      if (term.tensor.shape()[static_cast<int>(i)] != 1 || sizes_.at(term.labels[i]) == 1) continue;
      term.tensor = squeeze(term.tensor, static_cast<int>(i), where_);
      term.labels.erase(i, 1);
    }
  }

  /// Multiplications, about: unknown sizes count as 64.
  double cost(const Term& a, const Term& b) const {
    double product = 1;
    const auto count = [&](Label label) {
      const std::int64_t size = sizes_.at(label);
      product *= is_static(size) ? static_cast<double>(size) : 64.0;
    };
    for (const Label label : a.labels) count(label);
    for (const Label label : b.labels) {
      if (a.labels.find(label) == Labels::npos) count(label);
    }
    return product;
  }

  void contract_cheapest() {
    std::size_t first = 0, second = 1;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      for (std::size_t j = i + 1; j < terms_.size(); ++j) {
        const double product = cost(terms_[i], terms_[j]);
        if (product < least) {
          least = product;
          first = i;
          second = j;
        }
      }
    }
    Term a = std::move(terms_[first]), b = std::move(terms_[second]);
    terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(second));
    terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(first));
    terms_.insert(terms_.begin(), product_of(std::move(a), std::move(b)));
  }

  bool is_needed(Label label) const {
    return output_.find(label) != Labels::npos ||
           std::ranges::any_of(
               terms_, [&](const Term& term) { return term.labels.find(label) != Labels::npos; });
  }

  /// The product of two terms, which are no longer among terms_, summed over what nobody needs.
  Term product_of(Term a, Term b) const {
    const auto has = [](const Term& term, Label label) {
      return term.labels.find(label) != Labels::npos;
    };
    sum_out(a, [&](Label label) { return !has(b, label) && !is_needed(label); });
    sum_out(b, [&](Label label) { return !has(a, label) && !is_needed(label); });
    Labels batch, contracted, rest_a, rest_b;
    for (const Label label : a.labels) {
      (!has(b, label) ? rest_a : is_needed(label) ? batch : contracted) += label;
    }
    for (const Label label : b.labels) {
      if (!has(a, label)) rest_b += label;
    }
    const Labels result = batch + rest_a + rest_b;
    if (contracted.empty()) {
      return {mul(spread(a, result), spread(b, result), where_), result};
    }
    // [batch, rest, contracted] and [batch, contracted, rest], each group as one axis where the
    // sizes are known; dot() keeps them apart otherwise.
    return {matrix_product(a, b, batch, contracted, rest_a, rest_b), result};
  }

  std::int64_t elements(const Labels& labels) const {
    std::int64_t product = 1;
    for (const Label label : labels) {
      const std::int64_t size = sizes_.at(label);
      if (!is_static(size)) return -1;
      product = checked_multiply(product, size);
    }
    return product;
  }

  Tensor matrix_product(const Term& a, const Term& b, const Labels& batch, const Labels& contracted,
                        const Labels& rest_a, const Labels& rest_b) const {
    std::vector<AxisPair> pairs[2];
    const Labels* groups[2] = {&batch, &contracted};
    for (int g = 0; g < 2; ++g) {
      for (const Label label : *groups[g]) {
        pairs[g].push_back({place_of(a, label), place_of(b, label)});
      }
    }
    const std::int64_t m = elements(rest_a), n = elements(rest_b), k = elements(contracted);
    if (m >= 0 && n >= 0 && k >= 0 && elements(batch) >= 0) {
      const auto folded = [&](const Term& term, const Labels& first, const Labels& second,
                              std::int64_t rows, std::int64_t columns) {
        std::vector<std::int64_t> dims;
        for (const Label label : batch) dims.push_back(sizes_.at(label));
        dims.push_back(rows);
        dims.push_back(columns);
        return reshape(in_order(term.tensor, order_of(term, batch + first + second), where_), dims,
                       where_);
      };
      const Tensor y =
          matmul(folded(a, rest_a, contracted, m, k), folded(b, contracted, rest_b, k, n), where_);
      std::vector<std::int64_t> dims;
      for (const Labels* labels : {&batch, &rest_a, &rest_b}) {
        for (const Label label : *labels) dims.push_back(sizes_.at(label));
      }
      return reshape(y, dims, where_);
    }
    return dot(a.tensor, b.tensor, std::span<const AxisPair>(pairs[1]),
               std::span<const AxisPair>(pairs[0]), where_);
  }

  /// The term's axes in the order of `labels`, of size 1 where it lacks one.
  Tensor spread(const Term& term, const Labels& labels) const {
    Labels own;
    for (const Label label : labels) {
      if (term.labels.find(label) != Labels::npos) own += label;
    }
    Tensor x = in_order(term.tensor, order_of(term, own), where_);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (own.find(labels[i]) == Labels::npos) {
        x = unsqueeze(x, static_cast<std::int64_t>(i), {}, where_);
      }
    }
    return x;
  }

  template <class Drop>
  void sum_out(Term& term, Drop drop) const {
    std::vector<AxisRef> axes;
    Labels kept;
    for (std::size_t i = 0; i < term.labels.size(); ++i) {
      if (drop(term.labels[i])) {
        axes.emplace_back(static_cast<int>(i));
      } else {
        kept += term.labels[i];
      }
    }
    if (axes.empty()) return;
    const DType dtype = term.tensor.dtype();
    term.tensor = sum(term.tensor, AxisList(std::span<const AxisRef>(axes)), false, where_);
    if (term.tensor.dtype() != dtype) term.tensor = wrapped(term.tensor, dtype);
    term.labels = kept;
  }

  /// Sums of integers are i64; products keep their type, modulo 2^bits, which a cast would not.
  Tensor wrapped(const Tensor& x, DType dtype) const {
    const std::int64_t bits = 8 * block_bytes(dtype);
    if (is_unsigned(dtype)) {
      const auto mask = static_cast<double>((std::int64_t{1} << bits) - 1);
      return cast(bitwise_and(x, scalar_like(x, mask, where_), where_), dtype, where_);
    }
    const Tensor shift = scalar_like(x, static_cast<double>(64 - bits), where_);
    return cast(shift_right(shift_left(x, shift, where_), shift, where_), dtype, where_);
  }
  static bool is_unsigned(DType dtype) noexcept {
    return dtype == u8 || dtype == u16 || dtype == u32;
  }

  static AxisRef place_of(const Term& term, Label label) {
    return static_cast<int>(term.labels.find(label));
  }

  std::vector<AxisRef> order_of(const Term& term, const Labels& labels) const {
    std::vector<AxisRef> order;
    for (const Label label : labels) order.push_back(place_of(term, label));
    return order;
  }

  std::string equation_;
  std::vector<Shape> shapes_;
  std::vector<Term> terms_;
  Labels output_;
  std::map<Label, std::int64_t> sizes_;
  std::source_location where_;
};

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands,
              const std::source_location& where) {
  if (operands.empty()) fail_at(where, Errc::bad_argument, "einsum", "needs an operand");
  return Einsum(equation, operands, where).build();
}
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands,
              const std::source_location& where) {
  return einsum(equation, std::span<const Tensor>(operands.begin(), operands.size()), where);
}

Tensor diagonal(const Tensor& x, std::int64_t offset, const AxisRef& axis1, const AxisRef& axis2,
                const std::source_location& where) {
  const Tensor plain = without_tags(x, where);
  const int first = axis_of(x, axis1, "diagonal", where);
  const int second = axis_of(x, axis2, "diagonal", where);
  const Shape& shape = x.shape(where);
  if (first == second || !shape.is_static()) {
    fail_at(where, Errc::bad_argument, "diagonal",
            fmt::format("needs two axes and known sizes, got axes {} and {} of {}", first, second,
                        to_string(shape)));
  }
  std::vector<AxisRef> order;
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i == first || i == second) continue;
    order.emplace_back(i);
    dims.push_back(shape[i]);
  }
  order.emplace_back(first);
  order.emplace_back(second);
  const std::int64_t rows = shape[first], columns = shape[second];
  const std::int64_t count = std::max<std::int64_t>(
      0, offset < 0 ? std::min(rows + offset, columns) : std::min(rows, columns - offset));
  dims.push_back(checked_multiply(rows, columns));
  const Tensor flat = reshape(in_order(plain, order, where), dims, where);
  if (count == 0) return slice(flat, -1, 0, 0, 1, where);
  const std::int64_t begin = offset < 0 ? -offset * columns : offset;
  return slice(flat, -1, begin, begin + (count - 1) * (columns + 1) + 1, columns + 1, where);
}

Tensor trace(const Tensor& x, std::int64_t offset, const AxisRef& axis1, const AxisRef& axis2,
             const std::source_location& where) {
  return sum(diagonal(x, offset, axis1, axis2, where), -1, false, where);
}

Tensor outer(const Tensor& a, const Tensor& b, const std::source_location& where) {
  const Tensor rows = flatten(without_tags(a, where), 0, -1, where);
  const Tensor columns = flatten(without_tags(b, where), 0, -1, where);
  return mul(unsqueeze(rows, 1, {}, where), columns, where);
}

Tensor inner(const Tensor& a, const Tensor& b, const std::source_location& where) {
  if (a.rank(where) == 0 || b.rank(where) == 0) return mul(a, b, where);
  return dot(a, b, {{-1, -1}}, {}, where);
}

Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t axes,
                 const std::source_location& where) {
  if (axes < 0 || axes > a.rank(where) || axes > b.rank(where)) {
    fail_at(where, Errc::bad_argument, "tensordot",
            fmt::format("cannot sum over {} axes of {} and {}", axes, to_string(a.shape(where)),
                        to_string(b.shape(where))));
  }
  std::vector<AxisPair> pairs;
  for (std::int64_t i = 0; i < axes; ++i) pairs.push_back({a.rank(where) - axes + i, i});
  return dot(a, b, std::span<const AxisPair>(pairs), {}, where);
}

Tensor kron(const Tensor& a, const Tensor& b, const std::source_location& where) {
  const int rank = std::max(a.rank(where), b.rank(where));
  if (2 * rank > max_rank) {
    fail_at(where, Errc::bad_shape, "kron",
            fmt::format("takes rank 4 at most, got {} and {}", to_string(a.shape(where)),
                        to_string(b.shape(where))));
  }
  Tensor x = without_tags(a, where), y = without_tags(b, where);
  while (x.rank() < rank) x = unsqueeze(x, 0, {}, where);
  while (y.rank() < rank) y = unsqueeze(y, 0, {}, where);
  for (int i = 0; i < rank; ++i) {
    x = unsqueeze(x, 2 * i + 1, {}, where);
    y = unsqueeze(y, 2 * i, {}, where);
  }
  Tensor product = mul(x, y, where);
  for (int i = 0; i < rank; ++i) product = merge_axes(product, i, i + 1, {}, where);
  return product;
}

}  // namespace tenon
