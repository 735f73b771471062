#include "npy_format.hpp"

namespace tenon::io::npy {
namespace {

struct TypeCode {
  std::string_view code;
  DType dtype;
};

constexpr TypeCode type_codes[] = {
    {"b1", DType::boolean}, {"i1", DType::i8},  {"i2", DType::i16}, {"i4", DType::i32},
    {"i8", DType::i64},     {"u1", DType::u8},  {"u2", DType::u16}, {"u4", DType::u32},
    {"u8", DType::u64},     {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64},
    {"c8", DType::c64},
};

}  // namespace

std::optional<DType> find_dtype(std::string_view code) noexcept {
  for (const TypeCode& type : type_codes) {
    if (type.code == code) return type.dtype;
  }
  return std::nullopt;
}

std::string_view dtype_code(DType dtype) noexcept {
  for (const TypeCode& type : type_codes) {
    if (type.dtype == dtype) return type.code;
  }
  return {};
}

}  // namespace tenon::io::npy
