#include "jinja_functions.hpp"
#include "jinja_numbers.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tenon::text::jinja {
namespace {

const Value& other_of(const Arguments& a) {
  if (a.values.empty()) refuse("a test without the value to compare with");
  return a.values[0];
}
/// As Python's %.
double remainder_of(const Value& value, const Value& by) {
  for (const Value* const one : {&value, &by}) {
    if (!one->is_number()) refuse(fmt::format("a test of numbers, with {}", one->type_name()));
  }
  return number_result("%", value, by).number();
}
double remainder_of_2(const Value& value) { return remainder_of(value, std::int64_t{2}); }
bool is_equal_test(const Value& v, const Arguments& a) { return are_equal(v, other_of(a)); }
bool is_unequal_test(const Value& v, const Arguments& a) { return !are_equal(v, other_of(a)); }
bool is_less_test(const Value& v, const Arguments& a) { return is_less(v, other_of(a)); }
bool is_greater_test(const Value& v, const Arguments& a) { return is_less(other_of(a), v); }
bool is_most_test(const Value& v, const Arguments& a) { return is_at_most(v, other_of(a)); }
bool is_least_test(const Value& v, const Arguments& a) { return is_at_most(other_of(a), v); }
bool is_sequence(const Value& v, const Arguments&) {
  return v.text() != nullptr || v.list() != nullptr ||
         (v.dict() != nullptr && !v.dict()->is_namespace) || v.is_undefined();
}

struct NamedTest {
  std::string_view name;
  Test test;
};
constexpr NamedTest all_tests[] = {
    {"boolean", [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr; }},
    {"callable", [](const Value& v, const Arguments&) { return v.function() != nullptr; }},
    {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"divisibleby",
     [](const Value& v, const Arguments& a) { return remainder_of(v, other_of(a)) == 0; }},
    {"eq", is_equal_test},
    {"==", is_equal_test},
    {"equalto", is_equal_test},
    {"even", [](const Value& v, const Arguments&) { return remainder_of_2(v) == 0; }},
    {"false",
     [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr && !*v.as<bool>(); }},
    {"filter",
     [](const Value& v, const Arguments&) {
       return v.text() != nullptr && find_filter(v.text()->bytes) != nullptr;
     }},
    {"float", [](const Value& v, const Arguments&) { return v.as<double>() != nullptr; }},
    {"ge", is_least_test},
    {">=", is_least_test},
    {"greaterthan", is_greater_test},
    {"gt", is_greater_test},
    {">", is_greater_test},
    {"in", [](const Value& v, const Arguments& a) { return is_in(v, other_of(a)); }},
    {"integer", [](const Value& v, const Arguments&) { return v.as<std::int64_t>() != nullptr; }},
    {"iterable", is_sequence},
    {"le", is_most_test},
    {"<=", is_most_test},
    {"lessthan", is_less_test},
    {"lower", [](const Value& v, const Arguments&) { return is_lower_case(to_text(v)); }},
    {"lt", is_less_test},
    {"<", is_less_test},
    {"mapping", [](const Value& v,
                   const Arguments&) { return v.dict() != nullptr && !v.dict()->is_namespace; }},
    {"ne", is_unequal_test},
    {"!=", is_unequal_test},
    {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
    {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
    {"odd", [](const Value& v, const Arguments&) { return remainder_of_2(v) == 1; }},
    {"sameas",
     [](const Value& v, const Arguments& a) {
       return v.type_name() == other_of(a).type_name() && are_equal(v, other_of(a));
     }},
    {"sequence", is_sequence},
    {"string", [](const Value& v, const Arguments&) { return v.text() != nullptr; }},
    {"test",
     [](const Value& v, const Arguments&) {
       return v.text() != nullptr && find_test(v.text()->bytes) != nullptr;
     }},
    {"true",
     [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr && *v.as<bool>(); }},
    {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
    {"upper", [](const Value& v, const Arguments&) { return is_upper_case(to_text(v)); }},
};

}  // namespace

Test find_test(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(all_tests, name, &NamedTest::name);
  return found == std::end(all_tests) ? nullptr : found->test;
}

}  // namespace tenon::text::jinja
