#include "npu/driver_rig.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/npu/calibration.hpp>

#include <cmath>
#include <cstring>

namespace tenon::npu::testing {
namespace {

HostBuffer values_for(const std::string& name, const Shape& shape, std::uint64_t seed) {
  std::uint64_t mixed = seed;
  for (const char c : name) mixed = mixed * 1099511628211ULL + static_cast<unsigned char>(c);
  HostBuffer values = HostBuffer::zeros(shape);
  const double width =
      shape.rank() < 2 ? 0.1 : 1.7 / std::sqrt(static_cast<double>(shape.elements() / shape[0]));
  Random random(mixed);
  const HostBuffer uniform = random.uniform(shape);
  for (std::size_t i = 0; i < values.mutable_values<float>().size(); ++i) {
    values.mutable_values<float>()[i] = static_cast<float>(width) * uniform.values<float>()[i];
  }
  return values;
}

std::vector<HostBuffer> forward(Session& session, const std::vector<HostBuffer>& inputs) {
  std::vector<Buffer> buffers;
  for (const HostBuffer& input : inputs) buffers.push_back(input.to_device(cpu_device()));
  std::vector<HostBuffer> results;
  for (const Buffer& output : session.forward(std::move(buffers))) {
    results.push_back(output.to_host());
  }
  return results;
}

}  // namespace

std::vector<HostBuffer> Network::sample(std::uint64_t seed) const {
  std::vector<HostBuffer> result;
  Random random(seed);
  for (const Shape& shape : inputs) result.push_back(random.uniform(shape));
  return result;
}

Network make_network(const std::vector<Shape>& inputs, const Record& record, std::uint64_t seed,
                     const CalibrationOptions& options) {
  register_reference_backend();
  Graph graph;
  std::vector<Tensor> tensors;
  for (const Shape& shape : inputs) tensors.push_back(graph.input("", shape));
  const std::vector<Tensor> outputs = record(graph, tensors);
  Network network;
  network.program = graph.program(outputs);
  network.inputs = inputs;
  const Lowered lowered = lower(network.program, inputs);
  std::map<std::string, Buffer> weights;
  for (const ConstantSlot& slot : lowered.constants) {
    if (network.program.folded.contains(slot.name)) continue;
    weights.emplace(slot.name, values_for(slot.name, slot.shape, seed).to_device(cpu_device()));
  }
  network.weights = std::make_shared<const WeightSet>(std::move(weights));
  std::vector<std::vector<HostBuffer>> samples;
  for (std::uint64_t i = 1; i <= 3; ++i) samples.push_back(network.sample(seed * 7 + i));
  network.calibration = std::make_shared<const CalibrationTable>(
      calibrate(network.program, *network.weights, samples, options));
  return network;
}

std::vector<HostBuffer> run(const Network& network, const BackendPtr& backend,
                            const std::vector<HostBuffer>& inputs) {
  register_reference_backend();
  Session session(network.program, {.backends = {backend, make_backend("reference")}});
  session.bind(network.weights);
  return forward(session, inputs);
}

std::vector<HostBuffer> run_reference(const Network& network,
                                      const std::vector<HostBuffer>& inputs) {
  register_reference_backend();
  return run(network, make_backend("reference"), inputs);
}

Options options_for(const Network& network, Mode mode) {
  Options options;
  options.calibration = network.calibration;
  options.mode = mode;
  options.deadline = std::chrono::minutes(10);  // a busy machine is no broken device
  return options;
}

double cosine(const HostBuffer& a, const HostBuffer& b) {
  const HostBuffer x = a.contiguous(), y = b.contiguous();
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
    const double p = x.values<float>()[i], q = y.values<float>()[i];
    ab += p * q;
    aa += p * p;
    bb += q * q;
  }
  return aa == 0 && bb == 0 ? 1 : ab / std::sqrt(aa * bb);
}

bool same_bits(const std::vector<HostBuffer>& a, const std::vector<HostBuffer>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(a[i].shape() == b[i].shape())) return false;
    if (std::memcmp(a[i].contiguous().bytes(), b[i].contiguous().bytes(),
                    static_cast<std::size_t>(a[i].shape().bytes())) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace tenon::npu::testing
