#include "kernels/support.hpp"

#include <tenon/quant.hpp>

#include <cstring>

#include <catch2/catch.hpp>

namespace tenon::test {

std::vector<cpu::Isa> supported_isas() {
  std::vector<cpu::Isa> isas;
  for (int i = 0; i < cpu::isa_count; ++i) {
    if (cpu::supports(static_cast<cpu::Isa>(i))) isas.push_back(static_cast<cpu::Isa>(i));
  }
  return isas;
}

const std::vector<DType>& block_types() {
  static const std::vector<DType> types = {
      DType::q4_0,    DType::q4_1,   DType::q5_0,    DType::q5_1,  DType::q8_0,
      DType::q2_k,    DType::q3_k,   DType::q4_k,    DType::q5_k,  DType::q6_k,
      DType::iq4_nl,  DType::iq4_xs, DType::iq1_s,   DType::iq1_m, DType::iq2_s,
      DType::iq2_xxs, DType::iq2_xs, DType::iq3_xxs, DType::iq3_s, DType::tq1_0,
      DType::tq2_0,   DType::mxfp4,  DType::nvfp4,   DType::q1_0,  DType::q2_0};
  return types;
}

Random::Random() : seed_(std::random_device{}()), engine_(seed_) {}

std::vector<float> Random::normals(std::int64_t count, float scale) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = scale * normal();
  return values;
}

namespace {

// Where a block keeps its f16 fields.
std::vector<std::size_t> scale_offsets(DType dtype) {
  switch (dtype) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q2_k:
      return {80, 82};
    case DType::q3_k:
      return {108};
    case DType::q6_k:
      return {208};
    case DType::tq1_0:
      return {52};
    case DType::tq2_0:
      return {64};
    case DType::iq1_m:  // spread over four words: set_scales
    case DType::mxfp4:
    case DType::nvfp4:
      return {};
    default:
      return {0};
  }
}

float random_scale(Random& random) {
  if (random.below(16) == 0) return 0.0f;
  return 0.01f * random.normal();
}

void set_scales(Random& random, Weights& w) {
  for (std::size_t at = 0; at < w.bytes.size();
       at += static_cast<std::size_t>(block_bytes(w.dtype))) {
    for (const std::size_t offset : scale_offsets(w.dtype)) {
      const half scale = to_half(random_scale(random));
      std::memcpy(w.bytes.data() + at + offset, &scale, 2);
    }
    if (w.dtype == DType::mxfp4) {  // powers of two from 2^-10 to 2^-3
      w.bytes[at] = static_cast<std::byte>(118 + random.below(8));
    }
    for (std::size_t i = 0; w.dtype == DType::nvfp4 && i < 4; ++i) {  // 0 to 2^-4
      w.bytes[at + i] = static_cast<std::byte>(random.below(40));
    }
    if (w.dtype == DType::iq1_m) {
      const unsigned scale = to_half(random_scale(random)).bits;
      for (std::size_t i = 0; i < 4; ++i) {
        std::byte& high = w.bytes[at + 49 + 2 * i];
        high = (high & std::byte{15}) | static_cast<std::byte>((scale >> (4 * i) & 15u) << 4);
      }
    }
  }
}

}  // namespace

Weights random_weights(Random& random, DType dtype, std::int64_t outputs, std::int64_t inputs) {
  Weights w{dtype, outputs, inputs, {}, {}};
  const std::int64_t count = outputs * inputs;
  w.values.resize(static_cast<std::size_t>(count));
  w.bytes.resize(static_cast<std::size_t>(count / block_size(dtype) * block_bytes(dtype)));
  if (is_block(dtype)) {
    for (auto& b : w.bytes) b = std::byte{random.byte()};
    set_scales(random, w);
  } else {
    const std::vector<float> values = random.normals(count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::f32) {
        std::memcpy(w.bytes.data() + 4 * i, &values[i], 4);
      } else if (dtype == DType::f16) {
        const half h = to_half(values[i]);
        std::memcpy(w.bytes.data() + 2 * i, &h, 2);
      } else {
        const bfloat16 b = to_bfloat16(values[i]);
        std::memcpy(w.bytes.data() + 2 * i, &b, 2);
      }
    }
  }
  dequantize(dtype, w.bytes.data(), w.values.data(), count);
  return w;
}

Weights filled_weights(Random& random, DType dtype, std::int64_t outputs, std::int64_t inputs,
                       int fill) {
  Weights w = random_weights(random, dtype, outputs, inputs);
  for (auto& b : w.bytes) b = static_cast<std::byte>(fill);
  set_scales(random, w);
  dequantize(dtype, w.bytes.data(), w.values.data(), outputs * inputs);
  return w;
}

cpu::PackedWeights packed(const Weights& weights, int threads) {
  cpu::PackedWeights result(weights.dtype, weights.outputs, weights.inputs);
  for (int t = 0; t < threads; ++t) result.pack(weights.bytes.data(), t, threads);
  return result;
}

OwnedRows prepared(const std::vector<float>& x, std::int64_t rows, std::int64_t inputs,
                   cpu::RowForm form, cpu::Isa isa, int threads) {
  OwnedRows result;
  result.memory = cpu::AlignedBuffer(cpu::PreparedRows::size_bytes(form, rows, inputs));
  result.rows = cpu::PreparedRows(form, rows, inputs, result.memory.data(), isa);
  for (int t = 0; t < threads; ++t) {
    cpu::prepare_rows(x.data(), inputs, result.rows, t, threads, isa);
  }
  return result;
}

}  // namespace tenon::test
