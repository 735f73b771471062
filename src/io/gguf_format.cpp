#include "gguf_format.hpp"

#include <bit>

namespace tenon::io::gguf {
namespace {

struct TypeId {
  std::uint32_t id;
  DType dtype;
};

constexpr TypeId type_ids[] = {
    {0, DType::f32},     {1, DType::f16},      {2, DType::q4_0},    {3, DType::q4_1},
    {6, DType::q5_0},    {7, DType::q5_1},     {8, DType::q8_0},    {10, DType::q2_k},
    {11, DType::q3_k},   {12, DType::q4_k},    {13, DType::q5_k},   {14, DType::q6_k},
    {15, DType::q8_k},   {16, DType::iq2_xxs}, {17, DType::iq2_xs}, {18, DType::iq3_xxs},
    {19, DType::iq1_s},  {20, DType::iq4_nl},  {21, DType::iq3_s},  {22, DType::iq2_s},
    {23, DType::iq4_xs}, {24, DType::i8},      {25, DType::i16},    {26, DType::i32},
    {27, DType::i64},    {28, DType::f64},     {29, DType::iq1_m},  {30, DType::bf16},
    {34, DType::tq1_0},  {35, DType::tq2_0},   {39, DType::mxfp4},  {40, DType::nvfp4},
    {41, DType::q1_0},   {42, DType::q2_0},
};

struct ForeignId {
  std::uint32_t id;
  std::string_view name;
};

constexpr ForeignId foreign_ids[] = {
    {4, "q4_2 (removed)"},        {5, "q4_3 (removed)"},        {9, "q8_1"},
    {31, "q4_0_4_4 (removed)"},   {32, "q4_0_4_8 (removed)"},   {33, "q4_0_8_8 (removed)"},
    {36, "iq4_nl_4_4 (removed)"}, {37, "iq4_nl_4_8 (removed)"}, {38, "iq4_nl_8_8 (removed)"},
};

}  // namespace

std::optional<DType> find_dtype(std::uint32_t id) noexcept {
  for (const TypeId& type : type_ids) {
    if (type.id == id) return type.dtype;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> find_id(DType dtype) noexcept {
  for (const TypeId& type : type_ids) {
    if (type.dtype == dtype) return type.id;
  }
  return std::nullopt;
}

std::string_view foreign_name(std::uint32_t id) noexcept {
  for (const ForeignId& type : foreign_ids) {
    if (type.id == id) return type.name;
  }
  return {};
}

bool is_alignment(std::uint64_t alignment, std::uint64_t max) noexcept {
  return std::has_single_bit(alignment) && alignment >= min_alignment && alignment <= max;
}

}  // namespace tenon::io::gguf
