// Gradients through the recurrences of Mamba, Mamba-2 and RWKV-7: of tiny language models, with respect
// to every weight of a layer, against finite differences.
#include "support/op_testing.hpp"

#include <tenon/models/decoder.hpp>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

using Weights = std::map<std::string, Buffer>;

/// Results of a program of the inputs `ids` and these weights, as the reference computes them.
std::vector<HostBuffer> run(const Program& program, const HostBuffer& ids, const Weights& weights) {
  register_reference_backend();
  Session session(program, {.backends = {make_backend("reference")}});
  session.bind(std::make_shared<const WeightSet>(weights));
  std::vector<HostBuffer> results;
  for (const Buffer& result : session.forward({ids.to_device(cpu_device())})) {
    results.push_back(result.to_host());
  }
  return results;
}

TEST_CASE("grad: through Mamba and RWKV-7, every weight of a layer") {
  const std::string architecture = GENERATE("mamba", "mamba2", "rwkv7");
  INFO(architecture);
  const io::File file = io::open("tests/models/data/tiny_" + architecture + ".gguf");
  const WeightsView view = file.view();
  Random random;
  HostBuffer ids = HostBuffer::uninitialized(Shape({1, 10}, i32));
  for (std::int32_t& id : ids.mutable_values<std::int32_t>()) {
    id = static_cast<std::int32_t>(random.integer(0, 255));
  }

  Graph graph;
  const Graph::Recording recording(graph);
  const auto decoder = models::Decoder<>::init(view, models::DecoderConfig::from(file));
  const Tensor tokens = graph.input("ids", ids.shape());
  const Tensor loss = cross_entropy(decoder.scores(slice(tokens, 1, 0, -1)), slice(tokens, 1, 1));
  std::vector<Tensor> of_layer;
  visit_fields(decoder, [&](const std::string&, const Tensor& weight) {
    if (weight.name().starts_with("blk.1.") && weight.dtype() == f32) of_layer.push_back(weight);
  });
  REQUIRE(of_layer.size() > 6);
  const Program forward = graph.program({&loss, 1});
  const std::vector<Tensor> slopes = grad(loss, std::span<const Tensor>(of_layer));
  const Program backward = graph.program(slopes);

  Weights weights;
  for (const io::TensorEntry& entry : file.tensors()) {
    weights[entry.name] = entry.data().to_device(cpu_device());
  }
  const std::vector<HostBuffer> gradients = run(backward, ids, weights);
  std::size_t steep = 0;  // those whose slope is far above the margin
  for (std::size_t i = 0; i < of_layer.size(); ++i) {
    const std::string name(of_layer[i].name());
    INFO(name);
    const Buffer kept = weights.at(name);
    const HostBuffer at = kept.to_host(), direction = random.uniform(at.shape(), -0.01, 0.01);
    const auto loss_at = [&](double step) {
      weights[name] = moved(at, direction, step).to_device(cpu_device());
      return run(forward, ids, weights)[0].at({});
    };
    const auto slope = [&](double step) { return (loss_at(step) - loss_at(-step)) / (2 * step); };
    const double want = (4 * slope(0.25) - slope(0.5)) / 3;  // Richardson: no term of step^2
    weights[name] = kept;
    CHECK(dot(gradients[i], direction) == Approx(want).epsilon(0.02).margin(1e-5));
    if (std::fabs(want) > 1e-4) ++steep;
  }
  CHECK(2 * steep > of_layer.size());
}

}  // namespace
}  // namespace tenon::testing
