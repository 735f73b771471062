// Observers, multipliers and int8 weights, against numpy (python/tests/npu_quant_oracle.py).
#include "support/expect_error.hpp"
#include "support/literals.hpp"

#include <tenon/npu/calibration.hpp>
#include <tenon/npu/observer.hpp>
#include <tenon/npu/quantize.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::npu {
namespace {

using namespace tenon::testing;

struct Words {
  std::istringstream in;

  std::string word() {
    std::string result;
    in >> result;
    return result;
  }
  double real() { return std::strtod(word().c_str(), nullptr); }
  long long integer() { return std::strtoll(word().c_str(), nullptr, 10); }
};

ObserverKind kind_of(const std::string& word) {
  for (const auto kind : {ObserverKind::min_max, ObserverKind::percentile, ObserverKind::entropy}) {
    if (to_string(kind) == word) return kind;
  }
  throw std::runtime_error("no observer " + word);
}

TEST_CASE("npu quantiser: as numpy computes it") {
  std::ifstream file("tests/npu/data/driver_quantize.txt");
  REQUIRE(file);
  std::vector<float> sample;
  int observed = 0, multipliers = 0, scaled = 0, weights = 0;
  for (std::string text; std::getline(file, text);) {
    INFO(text.substr(0, 120));
    Words words{std::istringstream(text)};
    const std::string what = words.word();
    if (what == "sample") {
      sample.clear();
      for (std::string w = words.word(); !w.empty(); w = words.word()) {
        sample.push_back(std::strtof(w.c_str(), nullptr));
      }
    } else if (what == "observe") {
      ObserverOptions options;
      options.kind = kind_of(words.word());
      options.percentile = words.real();
      options.bins = static_cast<int>(words.integer());
      const double threshold = words.real();
      Observer observer(options);
      for (const float x : sample) observer.observe(x);
      CHECK(observer.range().threshold == threshold);
      // The order of the values makes no difference.
      Observer backwards(options);
      std::reverse(sample.begin(), sample.end());
      for (const float x : sample) backwards.observe(x);
      CHECK(backwards.range() == observer.range());
      ++observed;
    } else if (what == "multiplier") {
      const Profile profile = words.word() == "m8" ? Profile::m8 : Profile::m15;
      const double factor = words.real();
      const Multiplier found = encode_multiplier(factor, profile, "test");
      CHECK(found.m == words.integer());
      CHECK(found.s == words.integer());
      ++multipliers;
    } else if (what == "scale") {
      const auto acc = words.integer(), bias = words.integer();
      const Multiplier by{static_cast<std::uint16_t>(words.integer()),
                          static_cast<std::uint8_t>(words.integer())};
      CHECK(scale_accumulator(acc, bias, by) == words.integer());
      ++scaled;
    } else if (what == "weights") {
      const bool per_channel = words.integer() != 0;
      const auto o = words.integer(), k = words.integer();
      std::vector<double> steps;
      for (long long i = 0; i < o; ++i) steps.push_back(words.real());
      REQUIRE(words.word() == "|");
      std::vector<std::int8_t> values;
      for (long long i = 0; i < o * k; ++i) {
        values.push_back(static_cast<std::int8_t>(words.integer()));
      }
      REQUIRE(words.word() == "|");
      std::vector<float> real;
      for (long long i = 0; i < o * k; ++i) real.push_back(static_cast<float>(words.real()));
      const double one = 1;
      const QuantizedWeights found =
          quantize_weights(HostView(real.data(), Shape({o, k}, f32)), {&one, 1}, per_channel, "w");
      CHECK(found.steps == steps);
      CHECK(found.values == values);
      ++weights;
    }
  }
  CHECK(observed == 88);
  CHECK(multipliers == 407);
  CHECK(scaled == 300);
  CHECK(weights == 4);
}

TEST_CASE("npu quantiser: rounding and saturation of activations") {
  CHECK(quantize(0.5F, 1) == 0);
  CHECK(quantize(1.5F, 1) == 2);
  CHECK(quantize(-2.5F, 1) == -2);
  CHECK(quantize(1e30F, 1) == 127);
  CHECK(quantize(-1e30F, 1) == -128);
  CHECK(quantize(std::numeric_limits<float>::infinity(), 2) == 127);
  CHECK(quantize(std::numeric_limits<float>::quiet_NaN(), 2) == 0);
  CHECK(int8_step(127.0) == 1.0);
  CHECK(int8_step(0.0) == 1.0);
}

TEST_CASE("npu quantiser: multipliers beyond a profile are refused") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double factor : {0.0, -1.0, inf, std::nan(""), 16384.0}) {
    expect_error(Errc::out_of_range, [&] { encode_multiplier(factor, Profile::m15, "conv"); });
  }
  expect_error(Errc::out_of_range, [] { encode_multiplier(1.0, Profile::m8, "conv"); });
}

TEST_CASE("npu quantiser: input steps are folded into weights") {
  std::vector<float> real{1, 2, 3, 4};
  const HostView view(real.data(), Shape({2, 2}, f32));
  const std::vector<double> steps{1.0, 0.25};
  const QuantizedWeights found = quantize_weights(view, steps, true, "w");
  CHECK(found.steps == std::vector<double>{1.0 / 127, 3.0 / 127});
  CHECK(found.values == std::vector<std::int8_t>{127, 64, 127, 42});
  const std::vector<double> three(3, 1.0);
  expect_error(Errc::shape_mismatch, [&] { quantize_weights(view, three, true, "w"); });
  real[3] = std::numeric_limits<float>::quiet_NaN();
  expect_error(Errc::bad_input, [&] { quantize_weights(view, steps, true, "w"); });
}

TEST_CASE("npu observer: infinities and NaN are in the range, not in the threshold") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const ObserverKind kind :
       {ObserverKind::min_max, ObserverKind::percentile, ObserverKind::entropy}) {
    Observer observer({.kind = kind});
    observer.observe(-infinity);
    CHECK_FALSE(observer.range().is_finite());
    observer.observe(2);
    CHECK(observer.range() == Range{-infinity, 2, 2});
    CalibrationTable table;
    table.values["x"].tensor = observer.range();
    table.values["y"].tensor = {-infinity, infinity, 0};
    const CalibrationTable again = CalibrationTable::from_text(table.to_text());
    CHECK(again.find("x")->tensor == observer.range());
    CHECK(again.find("y")->tensor == table.find("y")->tensor);
    observer.observe(std::nanf(""));
    CHECK(observer.range() == Range{-infinity, infinity, 2});
  }
  for (const char* const wrong : {"inf inf 1", "-inf -inf 1", "nan 1 1", "0 1 inf", "0 1 nan"}) {
    INFO(wrong);
    expect_error(Errc::out_of_range, [&] {
      CalibrationTable::from_text("tenon-calibration 1\r\nx " + std::string(wrong) + "\r\n");
    });
  }
}

TEST_CASE("npu quantize: the least step has a reciprocal in f32") {
  CHECK(int8_step(127) == 1);
  for (const double threshold : {1e-36, 1e-38, 1e-45}) {
    CHECK(std::isfinite(static_cast<float>(1 / int8_step(threshold))));
  }
}

TEST_CASE("npu observer: what it refuses, and nothing seen") {
  CHECK(Observer().range() == Range{});
  expect_error(Errc::bad_argument, [] { Observer({.bins = 300}); });
  expect_error(Errc::bad_argument, [] { Observer({.percentile = 0}); });
  Observer zeros({.kind = ObserverKind::entropy});
  zeros.observe(0);
  CHECK(zeros.range() == Range{});
}

TEST_CASE("npu calibration: per tensor and per channel") {
  Calibration calibration({.observer = {}, .per_channel = true});
  std::vector<float> data{1, -2, 3, -4};
  calibration.observe("x", HostView(data.data(), Shape({1, 2, 1, 2}, f32)));
  data = {5, 0, 0, 0};
  calibration.observe("x", HostView(data.data(), Shape({1, 2, 1, 2}, f32)));
  std::vector<std::int64_t> whole{1, 2};
  calibration.observe("ids", HostView(whole.data(), Shape({2}, i64)));
  // Nothing was seen of it: a range of 0 would be one of zeros.
  calibration.observe("empty", HostView(data.data(), Shape({0, 2}, f32)));
  const CalibrationTable table = calibration.table();
  CHECK(table.find("ids") == nullptr);
  CHECK(table.find("empty") == nullptr);
  const ValueRange* x = table.find("x");
  REQUIRE(x != nullptr);
  CHECK(x->tensor == Range{-4, 5, 5});
  CHECK(x->channels == std::vector<Range>{{-2, 5, 5}, {-4, 3, 4}});
  expect_error(Errc::shape_mismatch,
               [&] { calibration.observe("x", HostView(data.data(), Shape({1, 4, 1, 1}, f32))); });
}

TEST_CASE("npu calibration: its text reads back, and nothing else does") {
  CalibrationTable table;
  table.values["x0"] = {{-1.0 / 3, 1e-300, 0.1}, {{-1, 2, 2}, {0, 0, 0}}};
  table.values["y"] = {{0, 6, 5.5}, {}};
  const std::string text = table.to_text();
  const CalibrationTable back = CalibrationTable::from_text(text);
  CHECK(back.to_text() == text);
  CHECK(back.find("x0")->tensor == table.find("x0")->tensor);
  CHECK(back.find("x0")->channels == table.find("x0")->channels);

  const auto refused = [](Errc code, const std::string& body) {
    INFO(body);
    expect_error(code, [&] { CalibrationTable::from_text("tenon-calibration 1\n" + body); });
  };
  expect_error(Errc::bad_magic, [] { CalibrationTable::from_text(""); });
  expect_error(Errc::bad_magic, [] { CalibrationTable::from_text("tenon-calibration 2\n"); });
  refused(Errc::syntax, "x 1 2\n");
  refused(Errc::syntax, "x 1 2 3 4\n");
  refused(Errc::syntax, "x 1 2 3 \n");
  refused(Errc::syntax, "x 1 2 three\n");
  refused(Errc::syntax, "- 1 2 2\n");
  refused(Errc::syntax, "\n");
  refused(Errc::duplicate_name, "x 1 2 2\nx 1 2 2\n");
  refused(Errc::out_of_range, "x 2 1 2\n");
  refused(Errc::out_of_range, "x 1 2 -2\n");
  refused(Errc::out_of_range, "x 1 2 inf\n");
  refused(Errc::out_of_range, "x 1 2 1e999\n");
}

}  // namespace
}  // namespace tenon::npu
