#pragma once

#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/logical.hpp>
#include <tenon/repeat.hpp>
#include <tenon/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tenon {

namespace detail {

/// Errc::bad_type unless a condition is a bool[].
void check_condition(std::string_view loop, const Tensor& condition,
                     const std::source_location& where);
/// Errc::shape_mismatch, naming both, unless two functions, or a function and what it gets, have tensors of the same
/// types.
void check_same_types(std::string_view loop, std::string_view name, std::span<const Tensor> made,
                      std::string_view wanted_name, std::span<const Tensor> wanted,
                      const std::source_location& where);

}  // namespace detail

/// A loop that its values end: carry = body(carry) while condition(carry) is true, at most `limit`
/// times. `carry` is a tensor, or a struct, tuple or array of tensors, whose types stay; the
/// condition is a bool[]. Both functions are traced, with outer values that they use as operands.
///
/// The loop runs where its steps do: on the CPU backend inside one parallel region. Its gradient
/// goes back through the iterations that it made, and needs memory for `limit` of them.
///
/// Errors: bad_type (a condition that is not bool[]), shape_mismatch (a carry that changes its type),
/// out_of_range (`limit` not in [0, max_iterations]).
template <class Carry, class Condition, class Body>
Carry while_loop(Carry carry, Condition&& condition, Body&& body,
                 std::int64_t limit = max_iterations,
                 const std::source_location& where = std::source_location::current()) {
  if (limit < 0 || limit > max_iterations) {
    throw Error(Errc::out_of_range, where, "while_loop: a limit outside [0, 2^20]");
  }
  using Both = std::pair<Tensor, Carry>;
  const Tensor first = condition(carry);
  detail::check_condition("while_loop", first, where);
  const Both last = detail::repeat_while(
      limit, Both(first, carry),
      [&](const Tensor&, const Both& now) {
        Carry next = body(now.second);
        detail::check_same_types("while_loop", "the body", detail::leaves_of(next), "the carry",
                                 detail::leaves_of(now.second), where);
        Tensor goes_on = condition(next);
        return Both(std::move(goes_on), std::move(next));
      },
      where);
  return last.second;
}

/// What one of two functions makes: `yes()` where the predicate, a bool[], is true, else `no()`. Only
/// that one is computed when the program runs. Both return a tensor, or a struct, tuple or array of
/// tensors, of the same types; sizes may be symbolic. A size that no symbol stands for (such as that of
/// a slice of a symbolic axis) is read from what `yes()` makes, which is then always computed.
///
/// A gradient goes back through the one that was computed.
///
/// Errors: bad_type (a predicate that is not bool[]), shape_mismatch; alias for a program in which one
/// updates a value from outside of it in place (cache_update, update_slice): the form below may.
template <class Yes, class No>
auto cond(const Tensor& predicate, Yes&& yes, No&& no,
          const std::source_location& where = std::source_location::current()) {
  using Result = std::remove_cvref_t<decltype(yes())>;
  using Both = std::pair<Tensor, Result>;
  detail::check_condition("cond", predicate, where);
  const Result example = yes();  // nothing uses what this records but for the types
  Result empty;
  transform_fields(example, empty, [&](const std::string&, const Tensor& like, Tensor& to) {
    to = detail::zeros_of_type(like, std::nullopt, where);
  });
  const Both after_yes = detail::repeat_while(
      1, Both(predicate, empty),
      [&](const Tensor&, const Both& now) { return Both(now.first, yes()); }, where);
  const Both after_no = detail::repeat_while(
      1, Both(logical_not(predicate, where), after_yes.second),
      [&](const Tensor&, const Both& now) {
        Result made = no();
        detail::check_same_types("cond", "no()", detail::leaves_of(made), "yes()",
                                 detail::leaves_of(example), where);
        return Both(now.first, std::move(made));
      },
      where);
  return after_no.second;
}

/// The same of a value that both make anew from what it was: `yes(carry)` or `no(carry)`, whose types are
/// the carry's. What it has is at hand where they run, so that they may update it in place, and a part
/// that a function returns as it got it costs nothing:
///
///   cache = cond(has_token, cache, [&](const Tensor& now) { return cache_update(now, …); },
///                [](const Tensor& now) { return now; });
///
/// Errors: bad_type (a predicate that is not bool[]), shape_mismatch (another type than the carry's).
template <class Carry, class Yes, class No>
  requires std::invocable<Yes&, const Carry&> && std::invocable<No&, const Carry&>
Carry cond(const Tensor& predicate, Carry carry, Yes&& yes, No&& no,
           const std::source_location& where = std::source_location::current()) {
  using Both = std::pair<Tensor, Carry>;
  detail::check_condition("cond", predicate, where);
  const auto run_if = [&](const Tensor& runs, Carry before, std::string_view name, auto& branch) {
    return detail::repeat_while(
               1, Both(runs, std::move(before)),
               [&](const Tensor&, const Both& now) {
                 Carry made = branch(now.second);
                 detail::check_same_types("cond", name, detail::leaves_of(made), "the carry",
                                          detail::leaves_of(now.second), where);
                 return Both(now.first, std::move(made));
               },
               where)
        .second;
  };
  Carry after_yes = run_if(predicate, std::move(carry), "yes()", yes);
  return run_if(logical_not(predicate, where), std::move(after_yes), "no()", no);
}

}  // namespace tenon
