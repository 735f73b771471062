#pragma once

#include <tenon/dtype.hpp>
#include <tenon/name.hpp>
#include <tenon/shape.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <variant>

namespace tenon {

/// A list of up to `max_rank` values, stored inline so that an op's attributes stay trivially
/// destructible.
template <class T>
class InlineList {
 public:
  constexpr InlineList() noexcept = default;
  InlineList(std::initializer_list<T> values)
      : InlineList(std::span<const T>(values.begin(), values.size())) {}
  explicit InlineList(std::span<const T> values);  ///< Errc::limit_exceeded above max_rank values

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const T& operator[](std::size_t i) const noexcept { return values_[i]; }
  T& operator[](std::size_t i) noexcept { return values_[i]; }
  const T* begin() const noexcept { return values_.data(); }
  const T* end() const noexcept { return values_.data() + size_; }
  std::span<const T> span() const noexcept { return {begin(), size_}; }
  void push_back(const T& value);  ///< Errc::limit_exceeded when full

  friend bool operator==(const InlineList& a, const InlineList& b) noexcept {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i) {
      if (!(a.values_[i] == b.values_[i])) return false;
    }
    return true;
  }

 private:
  std::array<T, max_rank> values_{};
  std::uint32_t size_ = 0;
};

using IntList = InlineList<std::int64_t>;

/// One attribute's value: an integer, a real, a flag, a word, an element type or a short list of
/// integers. Ops have no other kinds, and the text form can spell no others.
using AttributeValue = std::variant<std::int64_t, double, bool, Name, DType, IntList>;

/// One attribute of an op, type-erased.
struct AttributeField {
  std::string_view name;
  AttributeValue (*get)(const void* op);
  /// Stores a value of the field's own type, an integer into a real field, or the name of an
  /// element type into a DType field. Returns false for a value of another type.
  bool (*set)(void* op, const AttributeValue& value);
};

template <class Op, class T>
struct Field {
  std::string_view name;
  T Op::* member;
};

/// Names an attribute once:
/// `static constexpr auto fields = std::tuple{field("axis", &Softmax::axis)}`.
template <class Op, class T>
constexpr Field<Op, T> field(std::string_view name, T Op::* member) noexcept {
  return {name, member};
}

bool assign_attribute(std::int64_t& to, const AttributeValue& value) noexcept;
bool assign_attribute(double& to, const AttributeValue& value) noexcept;
bool assign_attribute(bool& to, const AttributeValue& value) noexcept;
bool assign_attribute(Name& to, const AttributeValue& value) noexcept;
bool assign_attribute(DType& to, const AttributeValue& value) noexcept;
bool assign_attribute(IntList& to, const AttributeValue& value) noexcept;

}  // namespace tenon
