#include "ops/builder.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/ops/loss.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/statistics.hpp>
#include <tenon/ops/stop_gradient.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>
#include <tenon/repeat.hpp>

#include <array>
#include <limits>
#include <span>
#include <string_view>

namespace tenon {
namespace {

/// Stands for log 0: differences of it with itself are numbers, so that gradients are, too.
constexpr double log_zero = -1e30;

void check_ctc(const Tensor& log_p, const Tensor& labels, const Tensor& steps, const Tensor& counts,
               std::int64_t blank, const std::source_location& where) {
  const Shape &p = log_p.shape(where), &l = labels.shape(where), &s = steps.shape(where),
              &c = counts.shape(where);
  const auto refuse = [&](Errc code, std::string_view why) {
    fail_at(where, code, "ctc_loss",
            fmt::format("{}: log_p {}, labels {}, steps {}, counts {}", why, to_string(p),
                        to_string(l), to_string(s), to_string(c)));
  };
  const auto is_index = [](DType dtype) { return dtype == i32 || dtype == i64; };
  if ((p.dtype() != f32 && p.dtype() != f64) || !is_index(l.dtype()) || !is_index(s.dtype()) ||
      !is_index(c.dtype())) {  // C1
    refuse(Errc::unsupported_dtype, "needs f32 or f64, and i32 or i64");
  }
  if (p.rank() != 3 || l.rank() != 2 || s.rank() != 1 || c.rank() != 1 || l[0] != p[1] ||
      s[0] != p[1] || c[0] != p[1]) {  // C2
    refuse(Errc::shape_mismatch, "needs [T, N, C], [N, S], [N] and [N]");
  }
  if (!is_static(p[0]) || !is_static(l[1]) || blank < 0 ||
      (is_static(p[2]) && blank >= p[2])) {  // C3
    refuse(Errc::bad_argument,
           fmt::format("needs known T and S and a blank in [0, C), not {}", blank));
  }
}

/// log(e^a + e^b + ...), of numbers.
Tensor log_add(std::span<const Tensor> terms, const std::source_location& where) {
  Tensor high = terms[0];
  for (const Tensor& term : terms.subspan(1)) high = maximum(high, term, where);
  high = stop_gradient(high, where);
  Tensor total;
  for (const Tensor& term : terms) {
    const Tensor part = exp(sub(term, high, where), where);
    total = total.is_empty() ? part : add(total, part, where);
  }
  return add(log(total, where), high, where);
}

}  // namespace

Tensor ctc_loss(const Tensor& tagged_log_p, const Tensor& tagged_labels, const Tensor& tagged_steps,
                const Tensor& tagged_counts, const CtcOptions& options,
                const std::source_location& line) {
  check_ctc(tagged_log_p, tagged_labels, tagged_steps, tagged_counts, options.blank, line);
  const Tensor log_p = tagged_log_p.with_tags({});
  const Tensor labels = cast(tagged_labels.with_tags({}), i64, line);
  const std::int64_t time = log_p.dim(0), width = 2 * labels.dim(1) + 1;
  // Taken from a list of what may be given, so that others are refused.
  const auto at_most = [&](std::int64_t most, const Tensor& numbers) {
    const Iota op{.size = most + 1, .dtype = i64};
    const Tensor known = record_beside(numbers, op_def<Iota>(), &op, line);
    const Tensor taken = gather(known, cast(numbers.with_tags({}), i64, line), 0, line);
    return unsqueeze(taken, 1, {}, line);
  };
  const Tensor steps = at_most(time, tagged_steps), counts = at_most(labels.dim(1), tagged_counts);

  // A blank, then each label and a blank: the states that an alignment goes through.
  const Tensor blanks = full_like(labels, static_cast<double>(options.blank), line);
  const Tensor is_used = lt(iota(labels, 1, i64, 0, 1, line), counts, line);
  const Tensor used = where(is_used, labels, blanks, line);
  const Tensor first = full_like(counts, static_cast<double>(options.blank), line);
  const Tensor pairs = merge_axes(stack({used, blanks}, 2, {}, line), 1, 2, {}, line);
  const Tensor states = concat({first, pairs}, 1, line);
  const Tensor index = broadcast_to(states, std::array<std::int64_t, 3>{time, -1, -1}, line);
  const Tensor least = scalar_like(log_p, log_zero, line);
  const Tensor emitted = maximum(take_along(log_p, index, 2, line), least, line);

  // A state is reached from itself, from the one before, and from the label before where that is another.
  const Tensor nothing = where(eq(first, first, line), least, least, line);  // [N, 1]
  const auto moved = [&](const Tensor& x, std::int64_t by) {
    const Tensor kept = slice(x, 1, 0, width - by, 1, line);
    return by == 1 ? concat({nothing, kept}, 1, line) : concat({nothing, nothing, kept}, 1, line);
  };
  Tensor penalty;
  if (width > 2) {
    const Tensor later = slice(states, 1, 2, to_end, 1, line);
    const Tensor jumps =
        logical_and(ne(later, scalar_like(later, static_cast<double>(options.blank), line), line),
                    ne(later, slice(states, 1, 0, width - 2, 1, line), line), line);
    penalty =
        concat({nothing, nothing, where(jumps, scalar_like(log_p, 0, line), least, line)}, 1, line);
  }
  const Tensor zero = sub(nothing, nothing, line);
  Tensor before_first = zero;
  if (width > 1) {
    const Tensor others = where(eq(pairs, pairs, line), least, least, line);
    before_first = concat({zero, others}, 1, line);
  }
  const Tensor last = repeat(
      time, before_first,
      [&](const Tensor& t, const Tensor& now) {
        std::vector<Tensor> ways = {now};
        if (width > 1) ways.push_back(moved(now, 1));
        if (width > 2) ways.push_back(add(moved(now, 2), penalty, line));
        const Tensor next = add(log_add(ways, line), select(emitted, t, line), line);
        return where(lt(t, steps, line), next, now, line);
      },
      line);

  // An alignment ends with the last label or the blank behind it.
  const Tensor end = counts * 2, none = scalar_like(counts, 0, line);
  Tensor log_likelihood = take_along(last, end, 1, line);
  if (width > 1) {
    const Tensor label = take_along(last, maximum(end - 1, none, line), 1, line);
    const Tensor of_label = where(gt(counts, none, line), label, least, line);
    log_likelihood = log_add(std::array{log_likelihood, of_label}, line);
  }
  log_likelihood = squeeze(log_likelihood, 1, line);
  const Tensor is_impossible = lt(log_likelihood, scalar_like(log_p, 0.5 * log_zero, line), line);
  const double infinite = options.zero_infinity ? 0 : std::numeric_limits<double>::infinity();
  Tensor losses = where(is_impossible, scalar_like(log_p, infinite, line), -log_likelihood, line);
  if (options.reduction == Reduction::none) return losses;
  if (options.reduction == Reduction::sum) return sum(losses, {}, false, line);
  const Tensor most = maximum(counts, scalar_like(counts, 1, line), line);
  return mean(div(losses, cast(squeeze(most, 1, line), log_p.dtype(), line), line), {}, false,
              line);
}

}  // namespace tenon
