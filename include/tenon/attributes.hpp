#pragma once

#include <tenon/dtype.hpp>
#include <tenon/name.hpp>
#include <tenon/shape.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
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
/// `static constexpr auto fields = FieldList{field("axis", &Softmax::axis)}`.
template <class Op, class T>
constexpr Field<Op, T> field(std::string_view name, T Op::* member) noexcept {
  return {name, member};
}

namespace detail {

template <std::size_t index, class T>
struct FieldAt {
  T field;
};

template <std::size_t index, class T>
constexpr const T& field_at(const FieldAt<index, T>& at) noexcept {
  return at.field;
}

template <class Indices, class... Fields>
struct IndexedFields;
template <std::size_t... index, class... Fields>
struct IndexedFields<std::index_sequence<index...>, Fields...> : FieldAt<index, Fields>... {
  constexpr explicit IndexedFields(const Fields&... fields) noexcept
      : FieldAt<index, Fields>{fields}... {}
};

}  // namespace detail

/// The attributes of an op, in the order of its text. A std::tuple would do; this takes a compiler a
/// tenth of the time, in every source that includes ops.
template <class... Fields>
class FieldList : detail::IndexedFields<std::index_sequence_for<Fields...>, Fields...> {
 public:
  constexpr explicit FieldList(const Fields&... fields) noexcept
      : detail::IndexedFields<std::index_sequence_for<Fields...>, Fields...>(fields...) {}

  static constexpr std::size_t size() noexcept { return sizeof...(Fields); }
  template <std::size_t index>
  constexpr const auto& get() const noexcept {
    return detail::field_at<index>(*this);
  }
  /// f(fields...)
  template <class F>
  constexpr decltype(auto) apply(F&& f) const {
    return apply(std::forward<F>(f), std::index_sequence_for<Fields...>());
  }

 private:
  template <class F, std::size_t... index>
  constexpr decltype(auto) apply(F&& f, std::index_sequence<index...>) const {
    return std::forward<F>(f)(get<index>()...);
  }
};

bool assign_attribute(std::int64_t& to, const AttributeValue& value) noexcept;
bool assign_attribute(double& to, const AttributeValue& value) noexcept;
bool assign_attribute(bool& to, const AttributeValue& value) noexcept;
bool assign_attribute(Name& to, const AttributeValue& value) noexcept;
bool assign_attribute(DType& to, const AttributeValue& value) noexcept;
bool assign_attribute(IntList& to, const AttributeValue& value) noexcept;

}  // namespace tenon
