#include <tenon/error.hpp>
#include <tenon/quant.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;

namespace {

const std::vector<DType> block_types = {
    DType::q4_0,   DType::q4_1,  DType::q5_0,    DType::q5_1,  DType::q8_0,  DType::q2_k,
    DType::q3_k,   DType::q4_k,  DType::q5_k,    DType::q6_k,  DType::q8_k,  DType::iq4_nl,
    DType::iq4_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s, DType::tq1_0, DType::tq2_0,
    DType::mxfp4,  DType::nvfp4, DType::q1_0,    DType::q2_0};

/// Types that are read and not written.
const std::vector<DType> read_types = {DType::iq1_s, DType::iq1_m, DType::iq2_xxs, DType::iq2_xs};

std::vector<std::byte> quantized(DType type, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> blocks(
      static_cast<std::size_t>(count / block_size(type) * block_bytes(type)));
  quantize(type, values.data(), blocks.data(), count);
  return blocks;
}

std::vector<float> dequantized(DType type, const std::vector<std::byte>& blocks) {
  const auto bytes = static_cast<std::int64_t>(blocks.size());
  std::vector<float> values(static_cast<std::size_t>(bytes / block_bytes(type) * block_size(type)));
  dequantize(type, blocks.data(), values.data(), static_cast<std::int64_t>(values.size()));
  return values;
}

std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  return dequantized(type, quantized(type, values));
}

std::vector<float> gaussian(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(engine);
  return values;
}

/// Root of the mean squared error over the root of the mean square.
double relative_error(const std::vector<float>& expected, const std::vector<float>& actual) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(expected[i]) - static_cast<double>(actual[i]), 2);
    power += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / power);
}

/// A record of python/tests/quant_oracle.py.
struct Record {
  DType type;
  bool is_encode;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

std::vector<Record> read_records(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  std::vector<Record> records;
  char name[9] = {};
  while (file.read(name, 8)) {
    std::uint32_t header[3];
    REQUIRE(file.read(reinterpret_cast<char*>(header), sizeof header));
    const auto type = find_dtype(name);
    REQUIRE(type);
    Record record{*type, header[0] == 1, std::vector<std::byte>(header[1]),
                  std::vector<float>(header[2])};
    REQUIRE(file.read(reinterpret_cast<char*>(record.blocks.data()), header[1]));
    REQUIRE(file.read(reinterpret_cast<char*>(record.values.data()), header[2] * 4));
    records.push_back(std::move(record));
  }
  return records;
}

/// Every record bit for bit; the records must cover every type that gguf has a function for.
void check_records(const std::vector<Record>& records) {
  std::map<DType, int> decoded, encoded;
  for (const auto& record : records) {
    INFO(name(record.type) << (record.is_encode ? " quantise" : " dequantise"));
    const auto count = static_cast<std::int64_t>(record.values.size());
    REQUIRE(count / block_size(record.type) * block_bytes(record.type) ==
            static_cast<std::int64_t>(record.blocks.size()));
    if (record.is_encode) {
      const auto actual = quantized(record.type, record.values);
      const auto [a, b] = std::mismatch(actual.begin(), actual.end(), record.blocks.begin());
      INFO("byte " << a - actual.begin());
      CHECK(a == actual.end());
      encoded[record.type] += 1;
    } else {
      const auto actual = dequantized(record.type, record.blocks);
      const auto [a, b] =
          std::mismatch(actual.begin(), actual.end(), record.values.begin(), [](float x, float y) {
            return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
          });
      INFO("element " << a - actual.begin());
      CHECK(a == actual.end());
      decoded[record.type] += 1;
    }
  }
  for (const auto type : block_types) CHECK(decoded[type] > 0);
  for (const auto type : read_types) CHECK(decoded[type] > 0);
  CHECK(decoded[f16] > 0);
  CHECK(decoded[bf16] > 0);
  for (const auto type : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0}) {
    CHECK(encoded[type] > 0);
  }
}

}  // namespace

TEST_CASE("quant: a q4_0 block by hand") {
  std::array<std::byte, 18> block{};
  block[0] = std::byte{0x00};  // d = 0.5
  block[1] = std::byte{0x38};
  block[2] = std::byte{0xF0};  // element 0: (0 - 8) / 2, element 16: (15 - 8) / 2
  block[3] = std::byte{0x89};  // element 1: (9 - 8) / 2, element 17: 0
  float values[32];
  dequantize(DType::q4_0, block.data(), values, 32);
  CHECK(values[0] == -4.0f);
  CHECK(values[16] == 3.5f);
  CHECK(values[1] == 0.5f);
  CHECK(values[17] == 0.0f);
  CHECK(values[31] == -4.0f);
}

TEST_CASE("quant: the bits of gguf's numpy functions") {
  check_records(read_records("tests/core/data/quant_fixture.bin"));
}

TEST_CASE("quant: the bits of gguf's numpy functions, many blocks", "[oracle]") {
  const char* python = std::getenv("TENON_ORACLE_PYTHON");
  if (python == nullptr) {
    WARN("SKIPPED: TENON_ORACLE_PYTHON names no Python with numpy and gguf");
    return;
  }
  const auto seed = std::random_device{}();
  const auto path =
      std::filesystem::temp_directory_path() / ("tenon_quant_" + std::to_string(seed) + ".bin");
  const std::string command = std::string(python) +
                              " python/tests/quant_oracle.py --superblocks 600 --seed " +
                              std::to_string(seed) + " --out " + path.string();
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  const auto records = read_records(path);
  std::filesystem::remove(path);
  check_records(records);
}

TEST_CASE("quant: every f16 and bf16 value widens exactly") {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    float wide;
    dequantize(f16, reinterpret_cast<const std::byte*>(&stored), &wide, 1);
    if (std::bit_cast<std::uint32_t>(wide) !=
        std::bit_cast<std::uint32_t>(to_float(half{stored}))) {
      FAIL("f16 " << bits);
    }
    dequantize(bf16, reinterpret_cast<const std::byte*>(&stored), &wide, 1);
    if (std::bit_cast<std::uint32_t>(wide) != bits << 16) FAIL("bf16 " << bits);
  }
}

TEST_CASE("quant: plain types round to nearest") {
  const std::vector<float> values = {1.0f, -0.1f, 65519.0f, 3e-8f, -0.0f};
  CHECK(round_trip(f32, values) == values);
  CHECK(round_trip(f64, values) == values);
  CHECK(round_trip(f16, values) ==
        std::vector<float>{1.0f, -0.0999755859375f, 65504.0f, 0x1p-24f, -0.0f});
  CHECK(round_trip(bf16, values) ==
        std::vector<float>{1.0f, -0.10009765625f, 65536.0f, 0x1.02p-25f, -0.0f});
}

TEST_CASE("quant: error of a round trip of Gaussian values") {
  // A few per cent above what these encoders reach, so that a worse search shows.
  const std::map<DType, double> bounds = {
      {DType::q4_0, 0.090},    {DType::q4_1, 0.081},  {DType::q5_0, 0.0445},
      {DType::q5_1, 0.0392},   {DType::q8_0, 0.0056}, {DType::q2_k, 0.270},
      {DType::q3_k, 0.150},    {DType::q4_k, 0.0725}, {DType::q5_k, 0.0360},
      {DType::q6_k, 0.0172},   {DType::q8_k, 0.0074}, {DType::iq4_nl, 0.0760},
      {DType::iq4_xs, 0.0770}, {DType::iq2_s, 0.248}, {DType::iq3_xxs, 0.182},
      {DType::iq3_s, 0.133},   {DType::tq1_0, 0.445}, {DType::tq2_0, 0.445},
      {DType::mxfp4, 0.115},   {DType::nvfp4, 0.1},   {DType::q1_0, 0.62},
      {DType::q2_0, 0.4}};
  const auto values = gaussian(1 << 15, 7);
  for (const auto type : block_types) {
    const double error = relative_error(values, round_trip(type, values));
    INFO(name(type) << " " << error);
    CHECK(error < bounds.at(type));
    CHECK(error > bounds.at(type) / 2);  // a bound that says nothing would hide a regression
  }
}

TEST_CASE("quant: values under any scale and offset") {
  for (const auto type : block_types) {
    const auto plain = gaussian(1024, 11);
    const double base = relative_error(plain, round_trip(type, plain));
    for (const float scale : {-1e-2f, 40.0f}) {
      auto values = plain;
      for (auto& value : values) value *= scale;
      INFO(name(type) << " times " << scale);
      const double most = type == DType::nvfp4 ? 1.3 : 1.15;  // whose scales end at 2^-10
      CHECK(relative_error(values, round_trip(type, values)) < most * base + 1e-3);
    }
    auto positive = plain;
    for (auto& value : positive) value = std::fabs(value);
    INFO(name(type) << " positive");
    CHECK(relative_error(positive, round_trip(type, positive)) < 1.3 * base + 1e-3);
  }
}

TEST_CASE("quant: what a block holds exactly stays") {
  // Sixteen evenly spaced values: a grid that each of these types has, up to its scale's rounding.
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.25f * static_cast<float>(static_cast<int>(i * 7 % 16) - 8);
  }
  for (const auto type :
       {DType::q4_0, DType::q4_1, DType::q5_0, DType::q4_k, DType::q5_k, DType::q6_k}) {
    INFO(name(type));
    CHECK(relative_error(values, round_trip(type, values)) < 2e-3);
  }
}

TEST_CASE("quant: zeros stay zeros") {
  for (const auto type : block_types) {
    INFO(name(type));
    for (const float value : round_trip(type, std::vector<float>(512, 0.0f))) {
      REQUIRE(value == 0.0f);
    }
  }
}

TEST_CASE("quant: one infinity or NaN marks its own block only") {
  for (const auto type : block_types) {
    const auto block = static_cast<std::size_t>(block_size(type));
    for (const float special :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      auto values = gaussian(3 * block, 3);
      const auto clean = round_trip(type, values);
      values[2 * block - 1] = special;
      const auto marked = round_trip(type, values);
      INFO(name(type) << " " << special);
      for (std::size_t i = 0; i < 3 * block; ++i) {
        if (i / block == 1) {
          const bool is_marked = type == DType::nvfp4   ? marked[i] == 2688
                                 : type == DType::mxfp4 ? std::isinf(marked[i])
                                                        : std::isnan(marked[i]);
          REQUIRE(is_marked);
        } else {
          REQUIRE(marked[i] == clean[i]);
        }
      }
    }
  }
}

TEST_CASE("quant: magnitudes at the ends of f32") {
  for (const auto type : block_types) {
    INFO(name(type));
    auto values = gaussian(256, 5);
    for (auto& value : values) value *= 1e-38f;
    for (const float value : round_trip(type, values)) REQUIRE(std::fabs(value) < 1e-36f);
    for (auto& value : values) value = value * 1e38f * 5e37f;
    const auto large = round_trip(type, values);
    if (type == DType::q8_k) CHECK(relative_error(values, large) < 0.01);  // its scale is f32
  }
}

TEST_CASE("quant: q8_k carries the sums of its codes") {
  const auto blocks = quantized(DType::q8_k, gaussian(512, 9));
  for (std::size_t start = 0; start < blocks.size(); start += 292) {
    std::int8_t codes[256];
    std::int16_t sums[16];
    std::memcpy(codes, blocks.data() + start + 4, sizeof codes);
    std::memcpy(sums, blocks.data() + start + 260, sizeof sums);
    for (int group = 0; group < 16; ++group) {
      int sum = 0;
      for (int i = 0; i < 16; ++i) sum += codes[16 * group + i];
      CHECK(sums[group] == sum);
    }
  }
}

TEST_CASE("quant: buffers at odd addresses") {
  const auto values = gaussian(512, 13);
  for (const auto type : block_types) {
    INFO(name(type));
    const auto aligned = quantized(type, values);
    std::vector<std::byte> shifted(aligned.size() + 1);
    quantize(type, values.data(), shifted.data() + 1, 512);
    CHECK(std::memcmp(shifted.data() + 1, aligned.data(), aligned.size()) == 0);
    std::vector<float> actual(512);
    dequantize(type, shifted.data() + 1, actual.data(), 512);
    CHECK(actual == dequantized(type, aligned));
  }
}

TEST_CASE("quant: no elements") {
  quantize(DType::q4_k, nullptr, nullptr, 0);
  dequantize(DType::q4_k, nullptr, nullptr, 0);
}

TEST_CASE("quant: refused calls") {
  float values[256] = {};
  std::byte blocks[256];
  const auto code_of = [&](DType type, std::int64_t count) {
    try {
      quantize(type, values, blocks, count);
    } catch (const Error& error) {
      return error.code();
    }
    return Errc::internal;
  };
  CHECK(code_of(i8, 32) == Errc::unsupported_dtype);
  CHECK(code_of(boolean, 1) == Errc::unsupported_dtype);
  for (const auto type : read_types) {
    CHECK(!is_quantizable(type));
    CHECK(code_of(type, 256) == Errc::unsupported_dtype);
  }
  CHECK(code_of(DType::q4_0, 31) == Errc::bad_argument);
  CHECK(code_of(DType::q4_k, 32) == Errc::bad_argument);
  CHECK(code_of(f32, -1) == Errc::bad_argument);
}
