#include "base/immortal.hpp"
#include "graph/operand_count.hpp"
#include "program/literals.hpp"
#include "program/words.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/op.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <iterator>
#include <mutex>
#include <typeinfo>

#include <fmt/format.h>

namespace tenon {

#define TENON_OP(file, id, Struct) extern const OpDef id##_def;
namespace ops {
#include "ops/ops.def"
}
#undef TENON_OP

namespace {

constexpr const OpDef* op_table[] = {
#define TENON_OP(file, id, Struct) &ops::id##_def,
#include "ops/ops.def"
#undef TENON_OP
};

struct Registered {
  ForkLockedMutex mutex;
  std::vector<const OpDef*> ops;
};

constinit std::atomic<bool> any_registered{false};

// Never destroyed: programs may be read in static destructors.
Registered& registered() {
  return process_wide([] { return Registered(); });
}

template <class List>
const OpDef* find_in(const List& list, std::string_view name) noexcept {
  const auto found = std::ranges::find(list, name, [](const OpDef* def) { return def->name; });
  return found != std::end(list) ? *found : nullptr;
}

/// What a descriptor lacks of what the library relies on, or nothing.
std::string_view missing_in(const OpDef& def) noexcept {
  const auto is_word = [](char c) {
    return std::islower(static_cast<unsigned char>(c)) != 0 ||
           std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const OpTraits& traits = def.traits;
  const auto bits_beyond = [&](std::uint32_t inputs) {
    return def.max_inputs < 32 && inputs >> def.max_inputs != 0;
  };
  if (!is_identifier(def.name) || !std::ranges::all_of(def.name, is_word)) {
    return "a name of lower-case letters, digits and underscores";
  }
  if (def.infer == nullptr) return "infer()";
  if (def.reference == nullptr) return "reference()";
  if (def.min_inputs < 0 || def.min_inputs > def.max_inputs) return "0 <= min_inputs <= max_inputs";
  if (traits.view != (def.view != nullptr)) return "both or none of view() and the trait `view`";
  if (traits.updates_input >= def.max_inputs || bits_beyond(traits.in_place_inputs) ||
      bits_beyond(traits.picked_inputs)) {
    return "traits of inputs that it has";
  }
  if (traits.commutative && def.min_inputs < 2) return "two inputs, being commutative";
  return {};
}

/// What shows that two descriptors of one name are not those that two libraries made of one header,
/// or nothing.
std::string_view difference(const OpDef& a, const OpDef& b) {
  const auto name_of = [](const AttributeField& field) { return field.name; };
  const auto has_same = [&](auto OpDef::* member) {
    return (a.*member == nullptr) == (b.*member == nullptr);
  };
  if (!same_struct(a, b)) return "another struct";
  if (a.min_inputs != b.min_inputs || a.max_inputs != b.max_inputs) return "other inputs";
  if (a.attribute_bytes != b.attribute_bytes ||
      !std::ranges::equal(a.fields, b.fields, {}, name_of, name_of) ||
      !equal_attributes(a, a.defaults, b.defaults)) {
    return "other attributes";
  }
  if (!(a.traits == b.traits)) return "other traits";
  if (!has_same(&OpDef::gradient)) return a.gradient == nullptr ? "no gradient" : "a gradient";
  if (!has_same(&OpDef::flops)) return "another flops()";
  return {};
}

}  // namespace

void register_op(const OpDef& def) {
  if (const std::string_view missing = missing_in(def); !missing.empty()) {
    throw Error(Errc::bad_argument, "register_op",
                fmt::format("op '{}' needs {}", def.name, missing));
  }
  with_memory_errors("register_op", [&] {
    Registered& all = registered();
    const std::scoped_lock lock(all.mutex);
    if (find_in(op_table, def.name) == &def) return;
    if (const OpDef* known = find_in(all.ops, def.name)) {
      if (known == &def) return;
      const std::string_view other = difference(*known, def);
      if (other.empty()) return;
      throw Error(Errc::duplicate_name, "register_op",
                  fmt::format("'{}' is another op, registered before with {}", def.name, other));
    }
    if (is_keyword(def.name) || is_language_word(def.name) ||
        find_in(op_table, def.name) != nullptr) {
      throw Error(Errc::duplicate_name, "register_op",
                  fmt::format("'{}' is another op or a word of the language", def.name));
    }
    all.ops.push_back(&def);
    any_registered.store(true, std::memory_order_release);
  });
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> ops(std::begin(op_table), std::end(op_table));
  if (!any_registered.load(std::memory_order_acquire)) return ops;
  Registered& more = registered();
  const std::scoped_lock lock(more.mutex);
  ops.insert(ops.end(), more.ops.begin(), more.ops.end());
  return ops;
}

const OpDef* find_op(std::string_view name) noexcept {
  if (const OpDef* own = find_in(op_table, name)) return own;
  if (!any_registered.load(std::memory_order_acquire)) return nullptr;
  Registered& more = registered();
  const std::scoped_lock lock(more.mutex);
  return find_in(more.ops, name);
}

bool same_struct(const OpDef& a, const OpDef& b) noexcept {
  if (a.type == nullptr || b.type == nullptr) {
    return a.type == b.type && a.infer == b.infer && a.reference == b.reference && a.view == b.view;
  }
  if (a.type == b.type) return true;
  // By name: libraries may have a std::type_info each. Those of unnamed namespaces are one source's.
  const std::string_view name = a.type->name();
  return name == b.type->name() && name.find("_GLOBAL__N_") == name.npos &&
         name.find("`anonymous") == name.npos;
}

OpInstance::OpInstance(const OpDef& def, const void* attributes)
    : def_(&def), bytes_(def.attribute_bytes) {
  std::memcpy(bytes_.data(), attributes, def.attribute_bytes);
}

bool operator==(const OpInstance& a, const OpInstance& b) noexcept {
  return same_op(a.def_, b.def_) &&
         (a.def_ == nullptr || equal_attributes(*a.def_, a.attributes(), b.attributes()));
}

bool equal_attributes(const OpDef& def, const void* a, const void* b) noexcept {
  for (const AttributeField& field : def.fields) {
    if (!(field.get(a) == field.get(b))) return false;
  }
  return true;
}

std::string to_string(const OpInstance& op) {
  if (op.def() == nullptr) return "no op";
  std::string text(op.def()->name);
  std::string_view before = "(";
  for (const AttributeField& field : op.def()->fields) {
    text += fmt::format("{}{}={}", before, field.name, literal(field.get(op.attributes())));
    before = ", ";
  }
  return text + (before == "(" ? "()" : ")");
}

void fail(Errc code, std::string_view op, std::string message) {
  throw Error(code, std::string(op), std::move(message));
}

std::optional<std::string> refused_operand_count(int least, int most, int count) {
  if (least <= count && count <= most) return std::nullopt;
  return fmt::format("takes {}{} operand{}, {} given", least,
                     least == most ? "" : fmt::format(" to {}", most), most == 1 ? "" : "s", count);
}

}  // namespace tenon
