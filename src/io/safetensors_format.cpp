#include "safetensors_format.hpp"

namespace tenon::io::safetensors {
namespace {

struct TypeWord {
  std::string_view word;
  DType dtype;
};

// In the order of the reference's enumeration, which its writer sorts by.
constexpr TypeWord type_words[] = {
    {"BOOL", DType::boolean},    {"U8", DType::u8},           {"I8", DType::i8},
    {"F8_E5M2", DType::f8_e5m2}, {"F8_E4M3", DType::f8_e4m3}, {"I16", DType::i16},
    {"U16", DType::u16},         {"F16", DType::f16},         {"BF16", DType::bf16},
    {"I32", DType::i32},         {"U32", DType::u32},         {"F32", DType::f32},
    {"C64", DType::c64},         {"F64", DType::f64},         {"I64", DType::i64},
    {"U64", DType::u64},
};

}  // namespace

std::optional<DType> find_dtype(std::string_view word) noexcept {
  for (const TypeWord& type : type_words) {
    if (type.word == word) return type.dtype;
  }
  return std::nullopt;
}

std::string_view dtype_word(DType dtype) noexcept {
  for (const TypeWord& type : type_words) {
    if (type.dtype == dtype) return type.word;
  }
  return {};
}

int dtype_order(DType dtype) noexcept {
  int place = 0;
  for (const TypeWord& type : type_words) {
    if (type.dtype == dtype) return place;
    ++place;
  }
  return place;
}

}  // namespace tenon::io::safetensors
