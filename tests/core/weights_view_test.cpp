#include "support/expect_error.hpp"

#include <tenon/graph.hpp>
#include <tenon/weights_view.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;

WeightsView sample() {
  const std::vector<std::pair<std::string, Shape>> weights{
      {"blk.0.up.weight", Shape({4, 2}, f32)},  {"blk.1.up.weight", Shape({4, 2}, f32)},
      {"blk.10.up.weight", Shape({4, 2}, f32)}, {"blk.x.up.weight", Shape({1}, f32)},
      {"blk2.30.up", Shape({1}, f32)},          {"norm", Shape({2}, f32)}};
  return {"model.gguf", weights};
}

}  // namespace

TEST_CASE("WeightsView: names below a view") {
  const WeightsView view = sample();
  CHECK(view["blk"][1]["up"].full_name("weight") == "blk.1.up.weight");
  const Tensor weight = view["blk"][1]["up"].tensor("weight");
  CHECK(weight.name() == "blk.1.up.weight");
  CHECK(weight.op() == "constant");
  CHECK(weight.shape() == Shape({4, 2}, f32));
  CHECK(view.contains("norm"));
  CHECK_FALSE(view.contains("nor"));
  CHECK_FALSE(view["blk"].contains("norm"));
  CHECK(view.find("norm").has_value());
  CHECK_FALSE(view.find("norm.bias").has_value());
  CHECK(view.origin() == "model.gguf");
}

TEST_CASE("WeightsView: how many layers there are") {
  const WeightsView view = sample();
  CHECK(view["blk"].count() == 11);
  CHECK(view["blk2"].count() == 31);
  CHECK(view["norm"].count() == 0);
  CHECK(view.count() == 0);
}

TEST_CASE("WeightsView: a missing or misshapen weight is named with its file") {
  const WeightsView view = sample();
  const std::string missing =
      expect_error(Errc::bad_reference, [&] { view["blk"][0].tensor("down"); });
  for (const char* part :
       {"model.gguf", "'blk.0.down'", "blk.0.up.weight", "weights_view_test.cpp:"}) {
    INFO(missing << " should hold " << part);
    CHECK(missing.find(part) != std::string::npos);
  }
  const std::string close =
      expect_error(Errc::bad_reference, [&] { view["blk"][0].tensor("up.wieght"); });
  INFO(close);
  CHECK(close.find("did you mean 'blk.0.up.weight'") != std::string::npos);
  const std::int64_t wrong[] = {2, 4};
  const std::string shape =
      expect_error(Errc::shape_mismatch, [&] { view["blk"][0]["up"].tensor("weight", wrong); });
  for (const char* part : {"'blk.0.up.weight'", "f32[4, 2]", "[2, 4]"}) {
    INFO(shape << " should hold " << part);
    CHECK(shape.find(part) != std::string::npos);
  }
  const std::int64_t right[] = {4, 2};
  CHECK_NOTHROW(view["blk"][0]["up"].tensor("weight", right));
}

TEST_CASE("WeightsView: tensors live as long as any view") {
  std::optional<WeightsView> part;
  Tensor norm;
  {
    const WeightsView view = sample();
    norm = view.tensor("norm");
    part = view["blk"];
  }
  CHECK(norm.shape() == Shape({2}, f32));
  part.reset();
  expect_error(Errc::stale_handle, [&] { norm.shape(); });
}

TEST_CASE("WeightsView: one that was moved from says so") {
  WeightsView view = sample();
  const WeightsView other = std::move(view);
  CHECK(other.contains("norm"));
  expect_error(Errc::call_order, [&] { view.origin(); });
  expect_error(Errc::call_order, [&] { view.contains("norm"); });
  expect_error(Errc::call_order, [&] { view.tensor("norm"); });
  expect_error(Errc::call_order, [&] { view.find("norm"); });
  expect_error(Errc::call_order, [&] { view["blk"]; });
  expect_error(Errc::call_order, [&] { view.count(); });
}

}  // namespace tenon
