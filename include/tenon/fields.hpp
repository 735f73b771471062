#pragma once

#include <tenon/buffer.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Lists a model struct's members, once: `TENON_FIELDS(up, down)`. Listed members may be tensors,
/// other such structs, vectors, optionals and arrays of them, and plain values.
#define TENON_FIELDS(...)                                              \
  auto tenon_fields() noexcept { return std::tie(__VA_ARGS__); }       \
  auto tenon_fields() const noexcept { return std::tie(__VA_ARGS__); } \
  static constexpr std::string_view tenon_field_names() noexcept { return #__VA_ARGS__; }

namespace tenon {

template <class T>
concept HasFields = requires(const T& value) { value.tenon_fields(); };

/// The types that a model struct may have as leaves.
template <class T>
concept FieldLeaf = std::same_as<T, Tensor> || std::same_as<T, Buffer> || std::same_as<T, Shape> ||
                    std::same_as<T, HostBuffer>;

/// The type with every leaf replaced by `Leaf`: rebind_t<Mlp<Tensor>, Buffer> is Mlp<Buffer>. A
/// model struct's only template parameter is its leaf type, or another such struct; other types
/// stay as they are.
template <class T, class Leaf>
struct rebind {
  using type = T;
};
template <FieldLeaf T, class Leaf>
struct rebind<T, Leaf> {
  using type = Leaf;
};
template <template <class> class Model, class Old, class Leaf>
  requires HasFields<Model<Old>>
struct rebind<Model<Old>, Leaf> {
  using type = Model<typename rebind<Old, Leaf>::type>;
};
template <class T, class Allocator, class Leaf>
struct rebind<std::vector<T, Allocator>, Leaf> {
  using type = std::vector<typename rebind<T, Leaf>::type>;
};
template <class T, class Leaf>
struct rebind<std::optional<T>, Leaf> {
  using type = std::optional<typename rebind<T, Leaf>::type>;
};
template <class T, std::size_t N, class Leaf>
struct rebind<std::array<T, N>, Leaf> {
  using type = std::array<typename rebind<T, Leaf>::type, N>;
};
template <class... T, class Leaf>
struct rebind<std::tuple<T...>, Leaf> {
  using type = std::tuple<typename rebind<T, Leaf>::type...>;
};
template <class A, class B, class Leaf>
struct rebind<std::pair<A, B>, Leaf> {
  using type = std::pair<typename rebind<A, Leaf>::type, typename rebind<B, Leaf>::type>;
};
template <class T, class Leaf>
using rebind_t = typename rebind<std::remove_cvref_t<T>, Leaf>::type;

/// The leaf type of a model struct: Tensor for Mlp<Tensor>.
template <class T>
struct leaf_of;
template <FieldLeaf T>
struct leaf_of<T> {
  using type = T;
};
template <template <class> class Model, class Inner>
struct leaf_of<Model<Inner>> : leaf_of<Inner> {};
template <class T>
using leaf_of_t = typename leaf_of<std::remove_cvref_t<T>>::type;

/// A model's weights: the struct with a Buffer in place of every Tensor.
template <class Model>
using Bufferized = rebind_t<Model, Buffer>;

namespace detail {

/// Name `index` of a comma-separated list.
std::string field_name(std::string_view names, std::size_t index);
std::string join_path(const std::string& path, const std::string& name);
std::string join_path(const std::string& path, std::size_t index);

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T, class A>
inline constexpr bool is_vector<std::vector<T, A>> = true;
template <class T>
concept TupleLike = !HasFields<T> && requires { std::tuple_size<T>::value; };

}  // namespace detail

/// Visits two structs of the same form in parallel: calls `visit(path, from_leaf, to_leaf)` for
/// each leaf in field order, and resizes `to`'s vectors and optionals and copies its plain values
/// from `from`. `path` reads like "layers.3.attention.query.weight".
template <class From, class To, class Visit>
void transform_fields(const From& from, To& to, Visit&& visit, const std::string& path = {}) {
  if constexpr (FieldLeaf<From>) {
    visit(path, from, to);
  } else if constexpr (HasFields<From>) {
    auto sources = from.tenon_fields();
    auto targets = to.tenon_fields();
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (transform_fields(std::get<I>(sources), std::get<I>(targets), visit,
                        detail::join_path(path, detail::field_name(From::tenon_field_names(), I))),
       ...);
    }(std::make_index_sequence<std::tuple_size_v<decltype(sources)>>());
  } else if constexpr (detail::is_vector<From>) {
    to.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      transform_fields(from[i], to[i], visit, detail::join_path(path, i));
    }
  } else if constexpr (detail::is_optional<From>) {
    if (from) {
      transform_fields(*from, to.emplace(), visit, path);
    } else {
      to.reset();
    }
  } else if constexpr (detail::TupleLike<From>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (transform_fields(std::get<I>(from), std::get<I>(to), visit, detail::join_path(path, I)),
       ...);
    }(std::make_index_sequence<std::tuple_size_v<From>>());
  } else {
    static_assert(std::same_as<From, To>,
                  "a field that is neither a leaf, a struct with TENON_FIELDS, "
                  "a container of these, nor a plain value");
    to = from;
  }
}

/// Calls `visit(path, leaf)` for each leaf of a struct, in field order. The visitor may change the
/// leaves of a non-const struct.
template <class Model, class Visit>
void visit_fields(Model&& model, Visit&& visit, const std::string& path = {}) {
  using Form = std::remove_cvref_t<Model>;
  if constexpr (FieldLeaf<Form>) {
    visit(path, model);
  } else if constexpr (HasFields<Form>) {
    auto fields = model.tenon_fields();
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (visit_fields(std::get<I>(fields), visit,
                    detail::join_path(path, detail::field_name(Form::tenon_field_names(), I))),
       ...);
    }(std::make_index_sequence<std::tuple_size_v<decltype(fields)>>());
  } else if constexpr (detail::is_vector<Form>) {
    for (std::size_t i = 0; i < model.size(); ++i) {
      visit_fields(model[i], visit, detail::join_path(path, i));
    }
  } else if constexpr (detail::is_optional<Form>) {
    if (model) visit_fields(*model, visit, path);
  } else if constexpr (detail::TupleLike<Form>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (visit_fields(std::get<I>(model), visit, detail::join_path(path, I)), ...);
    }(std::make_index_sequence<std::tuple_size_v<Form>>());
  }
}

/// A struct of the same form with another leaf type: `map_fields<Shape>(model, shape_of)`.
template <class Leaf, class Model, class Map>
rebind_t<Model, Leaf> map_fields(const Model& model, Map&& map) {
  rebind_t<Model, Leaf> result;
  transform_fields(model, result, [&](const std::string& path, const auto& from, Leaf& to) {
    to = map(path, from);
  });
  return result;
}

}  // namespace tenon
