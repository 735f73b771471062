// Who watches a network sees the numbers that it has unwatched: step by step, dumped, called back.
#include "npu/driver_checks.hpp"
#include "npu/driver_open.hpp"
#include "npu/driver_rig.hpp"
#include "support/expect_error.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/ops.hpp>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

namespace tenon::npu {
namespace {

using namespace tenon::npu::testing;
namespace fs = std::filesystem;

Tensor padded_conv(Graph& graph, const Tensor& x, const std::string& name, std::int64_t outputs,
                   std::int64_t kernel, const Conv2d& with = {}) {
  Conv2d conv = with;
  conv.padding = {kernel / 2, kernel / 2};
  const std::int64_t inputs = x.shape()[1] / conv.groups;
  return conv2d(x, graph.constant(name + ".w", Shape({outputs, inputs, kernel, kernel}, f32)),
                graph.constant(name + ".b", Shape({outputs}, f32)), conv);
}

/// Everything that a layer fuses, shares or keeps: bounds, slopes, residuals, gates, tables,
/// concatenations, slices, paddings, pools, means, a value that two read, one that leaves.
Network mixed_network(const CalibrationOptions& options) {
  return make_network(
      {Shape({2, 8, 10, 10}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        const Tensor a = relu(padded_conv(graph, in[0], "a", 64, 3));
        const Tensor b = leaky_relu(padded_conv(graph, a, "b", 64, 1), 0.1);
        const Tensor c = relu6(padded_conv(graph, b, "c", 64, 3, {.groups = 64}) + a);
        const Tensor joined = concat({relu(padded_conv(graph, c, "d", 32, 1)), silu(b)}, 1);
        const Tensor part = slice(joined, 1, 32, 64);
        const Tensor padded = pad(part, {0, 0, 1, 1}, {0, 0, 1, 1});
        const Tensor e = conv2d(padded, graph.constant("e.w", Shape({32, 32, 3, 3}, f32)));
        const Tensor pooled = max_pool2d(e, {.kernel = {2, 2}});
        const Tensor gated = sigmoid(padded_conv(graph, pooled, "f", 32, 1)) * pooled;
        const Tensor flat = flatten(gated, 1, 3);
        const Tensor g = linear(flat, graph.constant("g", Shape({48, 32 * 25}, f32)));
        const Tensor h = linear(gelu(g), graph.constant("h", Shape({48, 48}, f32))) + g;
        const Tensor averaged = mean(joined, {2, 3});
        return {h, linear(averaged, graph.constant("i", Shape({10, 96}, f32))), maximum(h, g)};
      },
      5, options);
}

Network chain() {
  return make_network(
      {Shape({1, 16, 8, 8}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        Tensor x = in[0];
        for (const char* name : {"a", "b", "c"}) {
          x = relu(padded_conv(graph, relu(padded_conv(graph, x, std::string(name) + "1", 16, 3)),
                               std::string(name) + "2", 16, 1) +
                   x);
        }
        return {x};
      },
      9);
}

Session session_on(const Network& network, const BackendPtr& npu) {
  register_reference_backend();
  Session session(network.program, {.backends = {npu, make_backend("reference")}});
  session.bind(network.weights);
  return session;
}

std::vector<Buffer> on_cpu(const std::vector<HostBuffer>& inputs) {
  std::vector<Buffer> buffers;
  for (const HostBuffer& input : inputs) buffers.push_back(input.to_device(cpu_device()));
  return buffers;
}

std::vector<HostBuffer> forward(Session& session, const std::vector<HostBuffer>& inputs) {
  std::vector<HostBuffer> results;
  for (const Buffer& output : session.forward(on_cpu(inputs))) results.push_back(output.to_host());
  return results;
}

/// Of an array that may lie in memory of the session, which goes on to use it.
HostBuffer copy_of(const HostBuffer& array) {
  const HostBuffer copy = HostBuffer::uninitialized(array.shape());
  copy_elements(array.view(), copy.view());
  return copy;
}

/// Runs it in every way there is to watch, on a backend that `make` gives.
void check_watched(const Network& network, const std::function<BackendPtr()>& make) {
  const std::vector<HostBuffer> inputs = network.sample(31);
  Session unwatched = session_on(network, make());
  const std::vector<HostBuffer> expected = forward(unwatched, inputs);

  Session stepped = session_on(network, make());
  std::vector<std::string> names;
  Session apart = session_on(network, make());
  apart.set_merge(false);
  std::map<std::string, HostBuffer> seen;
  apart.set_post_callback([&](const StepEvent& event) {
    REQUIRE(event.values.size() == 1);
    names.push_back(event.values[0]);
    seen.emplace(event.values[0], copy_of(event.outputs[0].to_host()));
  });
  bool same = same_bits(forward(apart, inputs), expected);
  CHECK(same);
  CHECK(names.size() > 5);

  // Stepping shows what the callback saw, again and again, whoever else steps meanwhile.
  const std::vector<HostBuffer> other_inputs = network.sample(32);
  Session fork = stepped.fork();
  for (int round = 0; round < 2; ++round) {
    for (const std::string& name : names) {
      INFO(name);
      const HostBuffer value = stepped.step_to(name, on_cpu(inputs)).to_host();
      static_cast<void>(fork.step_to(name, on_cpu(other_inputs)));
      same = same_bits({value}, {seen.at(name)});
      CHECK(same);
    }
  }

  Session profiled = session_on(network, make());
  profiled.set_merge(false);
  profiled.enable_time_profile(true);
  same = same_bits(forward(profiled, inputs), expected);
  CHECK(same);
  CHECK(profiled.step_times().size() == names.size());
}

TEST_CASE("npu watched: numbers are those of the run that nobody watches", "[one_thread]") {
  for (const bool per_channel : {false, true}) {
    INFO("per channel " << per_channel);
    const Network network = mixed_network({.observer = {}, .per_channel = per_channel});
    for (const char* url : {large_device, small_device}) {
      INFO(url);
      const DevicePtr device = open_npu(url);
      check_watched(network, [&] { return backend(device, options_for(network)); });
    }
    for (const Mode mode : {Mode::exact, Mode::fake_quantized, Mode::floating}) {
      INFO(to_string(mode));
      check_watched(network, [&] { return backend(nullptr, options_for(network, mode)); });
    }
  }
}

TEST_CASE("npu watched: values in place, with residuals over values that are gone") {
  const Network network = chain();
  const DevicePtr device = open_npu(small_device);
  check_watched(network, [&] { return backend(device, options_for(network)); });
  check_watched(network, [&] { return backend(nullptr, options_for(network, Mode::exact)); });
}

TEST_CASE("npu watched: sessions that stepped give their memory back") {
  const Network network = chain();
  const DevicePtr device = open_npu(small_device);
  const Session session = session_on(network, backend(device, options_for(network)));
  std::string last;
  {
    Session watched = session_on(network, backend(device, options_for(network)));
    watched.set_merge(false);
    watched.set_post_callback([&](const StepEvent& event) { last = event.values[0]; });
    forward(watched, network.sample(1));
  }
  const auto used_with = [&](int count) {
    std::vector<Session> forks;
    for (int i = 0; i < count; ++i) {
      forks.push_back(session.fork());
      static_cast<void>(forks.back().step_to(last, on_cpu(network.sample(1))));
    }
    return device->mem_region("etm").usage().used_bytes;
  };
  const std::uint64_t one = used_with(1);
  CHECK(used_with(4) > one);
  CHECK(used_with(1) == one);
}

/// A folder that is gone with its object.
struct Folder {
  Folder() {
    static int number = 0;
    path = fs::temp_directory_path() /
           ("tenon_npu_dump_" + std::to_string(::getpid()) + "_" + std::to_string(number++));
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// Bytes of every file, by its value.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> result;
    if (!fs::exists(path)) return result;
    for (const auto& entry : fs::directory_iterator(path)) {
      std::ifstream file(entry.path(), std::ios::binary);
      result[entry.path().stem().string()] = {std::istreambuf_iterator<char>(file), {}};
    }
    return result;
  }

  fs::path path;
};

template <class T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

TEST_CASE("npu watched: values are dumped in every format", "[one_thread]") {
  const Network network = mixed_network({.observer = {}, .per_channel = true});
  const std::vector<HostBuffer> inputs = network.sample(31);
  Session unwatched = session_on(network, backend(nullptr, options_for(network, Mode::exact)));
  const std::vector<HostBuffer> expected = forward(unwatched, inputs);
  std::map<std::string, std::map<std::string, std::string>> dumps;  // by format, then by value
  for (const char* format : {"", "HFB", "HFT", "HQB", "HQT", "SFB", "SFT", "SQB", "SQT"}) {
    INFO("format '" << format << "'");
    const Folder folder;
    Session session = session_on(network, backend(open_npu(large_device), options_for(network)));
    session.set_dump_outputs(folder.path.string(), format);
    const bool same = same_bits(forward(session, inputs), expected);
    CHECK(same);
    dumps[format] = folder.files();
    CHECK(dumps[format].size() == dumps[""].size());
    for (const auto& [value, bytes] : dumps[format]) {
      INFO(value);
      CHECK_FALSE(bytes.empty());
    }
  }
  for (const auto& [value, raw] : dumps[""]) {
    INFO(value);
    CHECK(dumps["SFB"][value] == raw);
    const auto real = values_of<float>(raw);
    const auto integers = values_of<std::int8_t>(dumps["SQB"][value]);
    REQUIRE(integers.size() == real.size());
    bool signs = true;
    for (std::size_t i = 0; i < real.size(); ++i) {
      signs = signs && (integers[i] > 0) == (real[i] > 0) && (integers[i] < 0) == (real[i] < 0);
    }
    CHECK(signs);
    // Whole blocks of 32 lanes, with nothing but zeros past the channels.
    const auto blocks = values_of<std::int8_t>(dumps["HQB"][value]);
    CHECK(blocks.size() % 32 == 0);
    CHECK(values_of<float>(dumps["HFB"][value]).size() == blocks.size());
    const auto sum = [](const std::vector<std::int8_t>& all) {
      return std::accumulate(all.begin(), all.end(), std::int64_t{0});
    };
    CHECK(sum(blocks) == sum(integers));
  }
}

TEST_CASE("npu watched: a format that a value has not is refused before anything runs") {
  const Network network = make_network(
      {Shape({1, 32}, f32)},
      [](Graph& graph, const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {softmax(linear(in[0], graph.constant("w", Shape({16, 32}, f32))), 1)};
      },
      3);
  const auto npu = backend(open_npu(small_device), options_for(network));
  for (const char* format : {"HQB", "HFT", "SQB", "HQ", "XQB", "SFTT"}) {
    INFO(format);
    const Folder folder;
    Session session = session_on(network, npu);
    session.set_dump_outputs(folder.path.string(), format);
    expect_error(Errc::bad_argument, [&] { forward(session, network.sample(1)); });
    CHECK(folder.files().empty());
  }
  CHECK(npu->counters().runs == 0);
  const Folder folder;
  Session session = session_on(network, npu);
  session.set_dump_outputs(folder.path.string(), "SFT");
  forward(session, network.sample(1));
  CHECK(folder.files().size() == 2);
}

}  // namespace
}  // namespace tenon::npu
