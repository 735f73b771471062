#include <tenon/op.hpp>

#include <cstring>

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

}  // namespace

std::span<const OpDef* const> all_ops() noexcept { return op_table; }

const OpDef* find_op(std::string_view name) noexcept {
  for (const OpDef* def : op_table) {
    if (def->name == name) return def;
  }
  return nullptr;
}

OpInstance::OpInstance(const OpDef& def, const void* attributes)
    : def_(&def), bytes_(def.attribute_bytes) {
  std::memcpy(bytes_.data(), attributes, def.attribute_bytes);
}

bool operator==(const OpInstance& a, const OpInstance& b) noexcept {
  return a.def_ == b.def_ &&
         (a.def_ == nullptr || equal_attributes(*a.def_, a.attributes(), b.attributes()));
}

bool equal_attributes(const OpDef& def, const void* a, const void* b) noexcept {
  for (const AttributeField& field : def.fields) {
    if (!(field.get(a) == field.get(b))) return false;
  }
  return true;
}

void fail(Errc code, std::string_view op, std::string message) {
  throw Error(code, std::string(op), std::move(message));
}

}  // namespace tenon
