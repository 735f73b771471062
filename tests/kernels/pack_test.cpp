#include "backends/cpu/matmul/panel_layout.hpp"
#include "kernels/support.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::test;
using cpu::PackedWeights;

namespace {

Errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("no error");
  return Errc::internal;
}

bool same_bits(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

/// Of the packed bytes of one matrix of each type.
std::uint64_t layout_hash(const std::vector<DType>& types) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const DType dtype : types) {
    const std::int64_t outputs = 40, inputs = 512;
    std::vector<std::byte> rows(
        static_cast<std::size_t>(outputs * inputs / block_size(dtype) * block_bytes(dtype)));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i * i / 7);
    PackedWeights weights(dtype, outputs, inputs);
    weights.pack(rows.data(), 0, 1);
    for (const std::byte byte : weights.bytes()) {
      hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    }
  }
  return hash;
}

}  // namespace

TEST_CASE("packed weights: rows come back bit for bit") {
  Random random;
  CAPTURE(random.seed());
  std::vector<DType> types = block_types();
  types.insert(types.end(), {DType::f32, DType::f16, DType::bf16});
  for (const DType dtype : types) {
    for (const std::int64_t outputs : {1, 15, 16, 17, 40}) {
      const std::int64_t inputs = is_block(dtype) ? 3 * block_size(dtype) : 37;
      const Weights w = random_weights(random, dtype, outputs, inputs);
      const PackedWeights p = packed(w, 3);
      std::vector<float> row(static_cast<std::size_t>(inputs));
      for (std::int64_t n = 0; n < outputs; ++n) {
        p.dequantize_row(n, row.data());
        CAPTURE(name(dtype), outputs, n);
        if (dtype == DType::tq1_0 || dtype == DType::tq2_0 ||
            dtype == DType::q2_0) {  // zeros may differ in their sign
          REQUIRE(std::equal(row.begin(), row.end(), w.values.data() + n * inputs));
        } else {
          REQUIRE(same_bits(row.data(), w.values.data() + n * inputs, row.size()));
        }
      }
    }
  }
}

TEST_CASE("packed weights: at most 7 % larger than the file, or as many bits as documented") {
  const std::map<DType, double> bits = {
      {DType::iq1_s, 3.63}, {DType::iq1_m, 3.63},   {DType::iq2_xxs, 3.63}, {DType::iq2_xs, 3.63},
      {DType::iq2_s, 3.63}, {DType::iq3_xxs, 4.38}, {DType::iq3_s, 4.38},   {DType::tq1_0, 2.65},
      {DType::tq2_0, 2.65}, {DType::mxfp4, 4.55},   {DType::nvfp4, 5.05},   {DType::q1_0, 2.55},
      {DType::q2_0, 2.55}};
  for (const DType dtype : block_types()) {
    const double weights = 576.0 * 1536.0;
    const double file =
        weights / static_cast<double>(block_size(dtype)) * static_cast<double>(block_bytes(dtype));
    const double most = bits.contains(dtype) ? weights / 8 * bits.at(dtype) : 1.07 * file;
    CAPTURE(name(dtype));
    CHECK(static_cast<double>(PackedWeights::packed_bytes(dtype, 576, 1536)) <= most);
  }
}

TEST_CASE("packed weights: borrowed bytes are used where they lie") {
  Random random;
  CAPTURE(random.seed());
  const Weights w = random_weights(random, DType::q4_1, 33, 64);
  const PackedWeights own = packed(w);
  const auto borrowed = PackedWeights::borrow(DType::q4_1, 33, 64, own.bytes());
  CHECK(own.owns_bytes());
  CHECK_FALSE(borrowed.owns_bytes());
  CHECK(borrowed.panel(2) == own.panel(2));
  std::vector<float> row(64);
  borrowed.dequantize_row(32, row.data());
  CHECK(same_bits(row.data(), w.values.data() + 32 * 64, 64));
}

TEST_CASE("packed weights: the layout is the one that files on disk have") {
  // Where a change of the layout makes this fail, `packed_layout` wants another number too.
  CHECK(cpu::packed_layout == 3);
  const auto first_lattice = block_types().begin() + 12;
  std::vector<DType> types(block_types().begin(), first_lattice);
  types.insert(types.end(), {DType::f32, DType::f16, DType::bf16});
  CHECK(layout_hash(types) == 0x5b6e22e1dfee0fff);
  const auto nvfp4 = std::ranges::find(block_types(), DType::nvfp4);
  CHECK(layout_hash({first_lattice, nvfp4}) == 0x57e7fb96832b5cc7);
  CHECK(layout_hash({nvfp4, block_types().end()}) == 0x254c232797614b71);
}

TEST_CASE("packed weights: errors") {
  CHECK(code_of([] { PackedWeights(DType::i32, 4, 32); }) == Errc::unsupported_dtype);
  CHECK(code_of([] { PackedWeights(DType::q8_k, 4, 256); }) == Errc::unsupported_dtype);
  CHECK(code_of([] { PackedWeights(DType::q4_0, 4, 48); }) == Errc::bad_shape);
  CHECK(code_of([] { PackedWeights(DType::q4_k, 4, 128); }) == Errc::bad_shape);
  CHECK(code_of([] { PackedWeights(DType::f32, -1, 1); }) == Errc::bad_shape);
  CHECK(code_of([] { PackedWeights(DType::f32, std::int64_t{1} << 40, std::int64_t{1} << 40); }) ==
        Errc::bad_shape);
  CHECK(code_of([] { PackedWeights(DType::f32, std::int64_t{1} << 25, std::int64_t{1} << 25); }) ==
        Errc::out_of_memory);
  const PackedWeights w(DType::q4_0, 16, 32);
  CHECK(code_of([&] { PackedWeights::borrow(DType::q4_0, 17, 32, w.bytes()); }) == Errc::bad_shape);
  std::vector<std::byte> odd(w.bytes().size() + 65);
  const auto start = reinterpret_cast<std::uintptr_t>(odd.data());
  const std::size_t shift = start % 64 == 1 ? 1 : 0;  // somewhere that is no multiple of 64
  const std::size_t at = (start + shift) % 64 == 0 ? 1 : shift;
  CHECK(code_of([&] {
          PackedWeights::borrow(DType::q4_0, 16, 32, {odd.data() + at, w.bytes().size()});
        }) == Errc::bad_alignment);
}
