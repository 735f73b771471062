#include <tenon/attributes.hpp>
#include <tenon/error.hpp>

#include <cstdint>
#include <limits>

#include <fmt/format.h>

namespace tenon {

template <class T>
InlineList<T>::InlineList(std::span<const T> values) {
  for (const T& value : values) push_back(value);
}

template <class T>
void InlineList<T>::push_back(const T& value) {
  if (size_ == max_rank) {
    throw Error(Errc::limit_exceeded, "InlineList",
                fmt::format("more than {} values in a list", max_rank));
  }
  values_[size_++] = value;
}

template class InlineList<std::int64_t>;

namespace {

template <class T>
bool assign_same(T& to, const AttributeValue& value) noexcept {
  const T* same = std::get_if<T>(&value);
  if (same != nullptr) to = *same;
  return same != nullptr;
}

/// Whether a double means this integer: it has its value, or is 2^63, which i64 limits to the largest one.
bool is_real(std::int64_t integer) noexcept {
  const auto real = static_cast<double>(integer);
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  if (real >= 0x1p63) return integer == largest;
  return static_cast<std::int64_t>(real) == integer;
}

}  // namespace

bool assign_attribute(std::int64_t& to, const AttributeValue& value) noexcept {
  return assign_same(to, value);
}

bool assign_attribute(double& to, const AttributeValue& value) noexcept {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    if (!is_real(*integer)) return false;
    to = static_cast<double>(*integer);
    return true;
  }
  return assign_same(to, value);
}

bool assign_attribute(bool& to, const AttributeValue& value) noexcept {
  return assign_same(to, value);
}

bool assign_attribute(Name& to, const AttributeValue& value) noexcept {
  return assign_same(to, value);
}

bool assign_attribute(DType& to, const AttributeValue& value) noexcept {
  if (const auto* word = std::get_if<Name>(&value)) {
    const auto dtype = find_dtype(word->text());
    if (dtype) to = *dtype;
    return dtype.has_value();
  }
  return assign_same(to, value);
}

bool assign_attribute(IntList& to, const AttributeValue& value) noexcept {
  return assign_same(to, value);
}

}  // namespace tenon
