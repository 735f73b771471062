#pragma once

#include <tenon/buffer.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Lists a model struct's members, once: `TENON_FIELDS(up, down)`. Listed members may be tensors,
/// other such structs, vectors, optionals, arrays and maps by std::string of them, and plain values.
///
/// `tenon_fields()` returns a function that calls another with all of them: a tuple would be a class to compile for
/// each of its tails.
#define TENON_FIELDS(...)                                                                     \
  auto tenon_fields() noexcept {                                                              \
    return [&](const auto& tenon_take) -> decltype(auto) { return tenon_take(__VA_ARGS__); }; \
  }                                                                                           \
  auto tenon_fields() const noexcept {                                                        \
    return [&](const auto& tenon_take) -> decltype(auto) { return tenon_take(__VA_ARGS__); }; \
  }                                                                                           \
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
template <class T, class Less, class Leaf>
struct rebind<std::map<std::string, T, Less>, Leaf> {
  using type = std::map<std::string, typename rebind<T, Leaf>::type, Less>;
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

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T, class A>
inline constexpr bool is_vector<std::vector<T, A>> = true;
template <class A>
inline constexpr bool is_vector<std::vector<bool, A>> =
    false;  // a plain value: it has no elements to refer to
template <class T>
concept TupleLike = !HasFields<T> && requires { std::tuple_size<T>::value; };

/// Calls the function with i = 0 .. count - 1 as its template argument.
template <std::size_t count, class Function>
void for_each_field(const Function& function) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (function.template operator()<I>(), ...);
  }(std::make_index_sequence<count>());
}

/// The common type of some leaves; void stands for none.
template <class First, class Second>
struct same_leaf {
  using type = Second;
  static_assert(std::is_void_v<First>, "the leaves of a struct have one type");
};
template <class First>
struct same_leaf<First, void> {
  using type = First;
};
template <class Leaf>
struct same_leaf<Leaf, Leaf> {
  using type = Leaf;
};
template <>
struct same_leaf<void, void> {
  using type = void;
};

/// That of any number. The tuple that they come from is not taken apart: each of its tails would be a class to compile.
template <class... Leaf>
struct same_leaves {
  using type = void;
};
template <class First, class... Others>
struct same_leaves<First, Others...> {
  using type = typename same_leaf<First, typename same_leaves<Others...>::type>::type;
};

/// The type of the leaves of any form; void where it has none.
template <class Form>
struct form_leaf {
  using type = void;
};
template <class Form>
using form_leaf_t = typename form_leaf<std::remove_cvref_t<Form>>::type;
template <class... Form>
struct form_leaf<std::tuple<Form...>> : same_leaves<form_leaf_t<Form>...> {};
template <FieldLeaf Leaf>
struct form_leaf<Leaf> {
  using type = Leaf;
};
struct LeafOfFields {
  template <class... Field>
  std::type_identity<typename same_leaves<form_leaf_t<Field>...>::type> operator()(
      const Field&...) const {
    return {};
  }
};
template <HasFields Form>
struct form_leaf<Form> : decltype(std::declval<const Form&>().tenon_fields()(LeafOfFields())){};
template <class T, class Allocator>
struct form_leaf<std::vector<T, Allocator>> : form_leaf<T> {};
template <class T>
struct form_leaf<std::optional<T>> : form_leaf<T> {};
template <class T, std::size_t N>
struct form_leaf<std::array<T, N>> : form_leaf<T> {};
template <class T, class Less>
struct form_leaf<std::map<std::string, T, Less>> : form_leaf<T> {};
template <class A, class B>
struct form_leaf<std::pair<A, B>> : form_leaf<std::tuple<A, B>> {};

template <class T>
inline constexpr bool is_map = false;  // with leaves; any other map is a plain value
template <class T, class Less>
inline constexpr bool is_map<std::map<std::string, T, Less>> = !std::is_void_v<form_leaf_t<T>>;

/// Whether Bufferized<Model> has buffers where the model has tensors.
template <class Model>
inline constexpr bool has_buffers =
    std::is_void_v<form_leaf_t<Model>> || std::same_as<form_leaf_t<Bufferized<Model>>, Buffer>;

/// Whether a type that a walk takes for a plain value is a class template of leaves, or of forms that
/// have some: a container of another kind, or a struct without TENON_FIELDS.
template <class T>
inline constexpr bool hides_leaves = false;
template <template <class...> class Outer, class... Inner>
inline constexpr bool hides_leaves<Outer<Inner...>> = (!std::is_void_v<form_leaf_t<Inner>> || ...);
template <class Inner, std::size_t N>
inline constexpr bool hides_leaves<Inner[N]> =
    hides_leaves<Inner> || !std::is_void_v<form_leaf_t<Inner>>;
template <class Inner>
inline constexpr bool hides_leaves<Inner*> =
    hides_leaves<Inner> || !std::is_void_v<form_leaf_t<Inner>>;

/// The leaves that a walk through a struct has found, with their paths. Neither the walk nor this
/// depend on what is then done with a leaf: a struct's walk is compiled once for all visitors.
class FieldWalk {
 public:
  struct Field {
    std::string path;
    const void* from;
    void* to;
  };

  explicit FieldWalk(std::string path) : path_(std::move(path)) {}
  void add(const void* from, void* to);
  const std::vector<Field>& fields() const noexcept { return fields_; }
  const std::string& path() const noexcept { return path_; }  ///< of where the walk is

  /// A field's name or an element's index: part of the path for its lifetime.
  class Part {
   public:
    /// Name `index` of a comma-separated list.
    Part(FieldWalk& walk, std::string_view names, std::size_t index);
    Part(FieldWalk& walk, std::size_t index);
    /// A key of a map.
    Part(FieldWalk& walk, const std::string& key);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    FieldWalk& walk_;
    std::size_t length_;  // of the path without it
  };

 private:
  std::string path_;
  std::vector<Field> fields_;
};

template <class Model>
void find_fields(Model& model, FieldWalk& walk);

/// Those of a struct's field, which has name `index` of `names`.
template <class Field>
void find_field(Field& field, std::string_view names, std::size_t index, FieldWalk& walk) {
  const FieldWalk::Part part(walk, names, index);
  find_fields(field, walk);
}

/// Adds the leaves of a struct to `walk`, as `to`.
template <class Model>
void find_fields(Model& model, FieldWalk& walk) {
  using Form = std::remove_const_t<Model>;
  if constexpr (FieldLeaf<Form>) {
    walk.add(nullptr, const_cast<Form*>(&model));
  } else if constexpr (HasFields<Form>) {
    model.tenon_fields()([&](auto&... field) {
      std::size_t index = 0;
      (find_field(field, Form::tenon_field_names(), index++, walk), ...);
    });
  } else if constexpr (is_vector<Form>) {
    for (std::size_t i = 0; i < model.size(); ++i) {
      const FieldWalk::Part part(walk, i);
      find_fields(model[i], walk);
    }
  } else if constexpr (is_map<Form>) {
    for (auto& [key, value] : model) {
      const FieldWalk::Part part(walk, key);
      find_fields(value, walk);
    }
  } else if constexpr (is_optional<Form>) {
    if (model) find_fields(*model, walk);
  } else if constexpr (TupleLike<Form>) {
    for_each_field<std::tuple_size_v<Form>>([&]<std::size_t i>() {
      const FieldWalk::Part part(walk, i);
      find_fields(std::get<i>(model), walk);
    });
  } else {
    static_assert(
        !hides_leaves<Form>,
        "its tensors cannot be found: a struct of tensors lists its members with a public "
        "TENON_FIELDS, and containers of them are vectors, optionals, std::arrays, tuples, pairs "
        "and maps by std::string");
  }
}

template <class From, class To>
void pair_fields(const From& from, To& to, FieldWalk& walk);

/// The same for a struct's field, which has name `index` of `names`.
template <class From, class To>
void pair_field(const From& from, To& to, std::string_view names, std::size_t index,
                FieldWalk& walk) {
  const FieldWalk::Part part(walk, names, index);
  pair_fields(from, to, walk);
}

/// Gives `to` the form and the plain values of `from`, and adds the pairs of leaves to `walk`.
template <class From, class To>
void pair_fields(const From& from, To& to, FieldWalk& walk) {
  if constexpr (FieldLeaf<From>) {
    walk.add(&from, &to);
  } else if constexpr (HasFields<From>) {
    from.tenon_fields()([&](const auto&... source) {
      to.tenon_fields()([&](auto&... target) {
        std::size_t index = 0;
        (pair_field(source, target, From::tenon_field_names(), index++, walk), ...);
      });
    });
  } else if constexpr (is_vector<From>) {
    to.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const FieldWalk::Part part(walk, i);
      pair_fields(from[i], to[i], walk);
    }
  } else if constexpr (is_map<From>) {
    std::erase_if(to, [&](const auto& entry) { return !from.contains(entry.first); });
    for (const auto& [key, value] : from) {
      const FieldWalk::Part part(walk, key);
      pair_fields(value, to[key], walk);
    }
  } else if constexpr (is_optional<From>) {
    if (from) {
      pair_fields(*from, to.emplace(), walk);
    } else {
      to.reset();
    }
  } else if constexpr (TupleLike<From>) {
    for_each_field<std::tuple_size_v<From>>([&]<std::size_t i>() {
      const FieldWalk::Part part(walk, i);
      pair_fields(std::get<i>(from), std::get<i>(to), walk);
    });
  } else {
    static_assert(std::same_as<From, To>,
                  "a field that is neither a leaf, a struct with TENON_FIELDS, "
                  "a container of these, nor a plain value");
    to = from;
  }
}

/// A plain value that two structs of one form do not have in common.
struct OtherValue {
  std::string path;
  std::string given, wanted;  ///< empty where it is no number
};

/// A number as text, floating ones with as few digits as tell them apart; empty for other values.
template <class Value>
std::string number_text(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<Value>) {
    std::array<char, 64> text{};
    const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
    return {text.data(), written.ptr};
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return std::to_string(value);
  } else {
    return {};
  }
}

template <class Given, class Wanted>
void find_other_value(const Given& given, const Wanted& wanted, FieldWalk& walk,
                      std::optional<OtherValue>& found);

/// The same for a struct's field, which has name `index` of `names`.
template <class Given, class Wanted>
void find_other_field(const Given& given, const Wanted& wanted, std::string_view names,
                      std::size_t index, FieldWalk& walk, std::optional<OtherValue>& found) {
  if constexpr (!FieldLeaf<Given>) {
    const FieldWalk::Part part(walk, names, index);
    find_other_value(given, wanted, walk, found);
  }
}

/// Whether values have an ==, those of containers included: the one of a vector is declared for every element type.
template <class Value>
inline constexpr bool has_equality = std::equality_comparable<Value>;
template <class Value, class... More>
inline constexpr bool has_equality<std::vector<Value, More...>> = has_equality<Value>;
template <class Value>
inline constexpr bool has_equality<std::optional<Value>> = has_equality<Value>;
template <class Key, class Value, class... More>
inline constexpr bool has_equality<std::map<Key, Value, More...>> =
    has_equality<Key> && has_equality<Value>;

/// A NaN is the same as a NaN here.
template <class Value>
bool same_value(const Value& a, const Value& b) {
  if constexpr (is_vector<Value>) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& one, const auto& other) { return same_value(one, other); });
  } else if constexpr (is_optional<Value>) {
    return a.has_value() == b.has_value() && (!a || same_value(*a, *b));
  } else {
    if constexpr (std::is_floating_point_v<Value>) {
      if (std::isnan(a) && std::isnan(b)) return true;
    }
    return a == b;
  }
}

/// Sets `found` to the first plain value, of a type with ==, that differs. Elements that only one of the two has are
/// left out.
template <class Given, class Wanted>
void find_other_value(const Given& given, const Wanted& wanted, FieldWalk& walk,
                      std::optional<OtherValue>& found) {
  constexpr bool has_leaves = !std::is_void_v<form_leaf_t<Given>>;
  if constexpr (FieldLeaf<Given>) {
    return;
  } else if constexpr (HasFields<Given>) {
    given.tenon_fields()([&](const auto&... one) {
      wanted.tenon_fields()([&](const auto&... other) {
        std::size_t index = 0;
        (find_other_field(one, other, Given::tenon_field_names(), index++, walk, found), ...);
      });
    });
  } else if constexpr (is_vector<Given> && has_leaves) {
    if constexpr (FieldLeaf<typename Given::value_type>) return;
    for (std::size_t i = 0; i < given.size() && i < wanted.size(); ++i) {
      const FieldWalk::Part part(walk, i);
      find_other_value(given[i], wanted[i], walk, found);
    }
  } else if constexpr (is_map<Given>) {
    for (const auto& [key, value] : given) {
      const auto other = wanted.find(key);
      if (other == wanted.end()) continue;
      const FieldWalk::Part part(walk, key);
      find_other_value(value, other->second, walk, found);
    }
  } else if constexpr (is_optional<Given> && has_leaves) {
    if (given && wanted) find_other_value(*given, *wanted, walk, found);
  } else if constexpr (TupleLike<Given>) {
    for_each_field<std::tuple_size_v<Given>>([&]<std::size_t i>() {
      if constexpr (!FieldLeaf<std::tuple_element_t<i, Given>>) {
        const FieldWalk::Part part(walk, i);
        find_other_value(std::get<i>(given), std::get<i>(wanted), walk, found);
      }
    });
  } else if constexpr (has_equality<Given>) {
    if (found || same_value(given, wanted)) return;
    found = OtherValue{walk.path(), number_text(given), number_text(wanted)};
  }
}

}  // namespace detail

/// Visits two structs of the same form in parallel: resizes `to`'s vectors and optionals and copies
/// its plain values from `from`, then calls `visit(path, from_leaf, to_leaf)` for each leaf in field
/// order. `path` reads like "layers.3.attention.query.weight". The leaves of a struct have one type.
template <class From, class To, class Visit>
void transform_fields(const From& from, To& to, Visit&& visit, const std::string& path = {}) {
  using FromLeaf = detail::form_leaf_t<From>;
  using ToLeaf = detail::form_leaf_t<To>;
  detail::FieldWalk walk(path);
  detail::pair_fields(from, to, walk);
  if constexpr (!std::is_void_v<FromLeaf>) {
    for (const auto& field : walk.fields()) {
      visit(field.path, *static_cast<const FromLeaf*>(field.from), *static_cast<ToLeaf*>(field.to));
    }
  }
}

/// Calls `visit(path, leaf)` for each leaf of a struct, in field order. The visitor may change the
/// leaves of a non-const struct. The leaves of a struct have one type.
template <class Model, class Visit>
void visit_fields(Model&& model, Visit&& visit, const std::string& path = {}) {
  using Form = std::remove_reference_t<Model>;
  using Leaf = detail::form_leaf_t<Form>;
  detail::FieldWalk walk(path);
  detail::find_fields<Form>(model, walk);
  if constexpr (!std::is_void_v<Leaf>) {
    using Visited = std::conditional_t<std::is_const_v<Form>, const Leaf, Leaf>;
    for (const auto& field : walk.fields()) visit(field.path, *static_cast<Visited*>(field.to));
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
