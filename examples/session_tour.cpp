// Features of a session, on a small convolutional network that runs partly on a simulated NPU:
// which backend runs what and why, copies, steps, callbacks, times, a trace, rings, forks,
// snapshots.
//
//   session_tour [FOLDER]     writes its files to FOLDER (default: a new one for temporary files)
#include <tenon/backends/npu.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/io/network.hpp>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include <stdlib.h>

using namespace tenon;
namespace fs = std::filesystem;

namespace {

/// Twice: 3x3 convolution, relu, 2x2 max pool; then a linear layer and a softmax.
Program digits_program(const io::File& file, std::int64_t batch) {
  Graph graph;
  const Tensor images = graph.input("images", Shape({batch, 1, 8, 8}, f32));
  const auto weight = [&](const char* name) { return graph.constant(name, file.at(name).shape); };
  const Conv2d same{.padding = {1, 1, 1, 1}};
  const MaxPool2d halve{.kernel = {2, 2}, .stride = {2, 2}};
  Tensor x = relu(conv2d(images, weight("conv1.weight"), weight("conv1.bias"), same));
  x = max_pool2d(x, halve);
  x = relu(conv2d(x, weight("conv2.weight"), weight("conv2.bias"), same));
  x = max_pool2d(x, halve);
  x = linear(flatten(x, 1, 3), weight("head.weight"), weight("head.bias"));
  const Tensor scores = softmax(x, 1);
  Program program = graph.program({&scores, 1});
  optimize(program);
  verify(program);
  return program;
}

std::shared_ptr<const WeightSet> weights_of(const io::File& file) {
  std::map<std::string, Buffer> weights;
  for (const io::TensorEntry& tensor : file.tensors()) {
    weights.emplace(tensor.name, tensor.data().to_device(cpu_device()));
  }
  return std::make_shared<const WeightSet>(std::move(weights));
}

void print_plan(const PlanReport& plan) {
  for (const PlanReport::Part& part : plan.parts) {
    std::printf("  %-4s runs %s%s%s\n", part.backend.c_str(), part.values.front().c_str(),
                part.values.size() > 1 ? " to " : "",
                part.values.size() > 1 ? part.values.back().c_str() : "");
  }
  for (const PlanReport::Transfer& copy : plan.transfers) {
    std::printf("  %s goes from %s to %s: %lld bytes\n", copy.value.c_str(), copy.from.c_str(),
                copy.to.c_str(), static_cast<long long>(copy.bytes));
  }
}

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

float largest_difference(const Buffer& a, const Buffer& b) {
  const HostBuffer host_a = a.to_host(), host_b = b.to_host();
  float largest = 0;
  for (std::size_t i = 0; i < host_a.values<float>().size(); ++i) {
    largest = std::max(largest, std::abs(host_a.values<float>()[i] - host_b.values<float>()[i]));
  }
  return largest;
}

int tour(const fs::path& folder) {
  register_cpu_backend();
  register_reference_backend();
  register_npu_sim();
  constexpr std::int64_t batch = 4;
  const io::File digits = io::open("examples/data/digits_test.safetensors");
  const HostBuffer all =
      digits.at("images").data().reshape({digits.at("images").shape.dim(0), 1, 8, 8});
  const HostBuffer images = all.slice(0, 0, batch).contiguous();
  const Buffer input = images.to_device(cpu_device());
  const io::File file = io::open("examples/data/digits_cnn.safetensors");
  const Program program = digits_program(file, batch);
  const auto weights = weights_of(file);

  // Backends. The NPU computes in int8, so that it must know how large values become.
  const DevicePtr device = Device::open("npu://sim?ocm=256KiB");
  const std::vector<std::vector<HostBuffer>> samples{{images}};
  const auto ranges =
      std::make_shared<const npu::CalibrationTable>(npu::calibrate(program, *weights, samples));
  const BackendPtr accelerator = npu::backend(device, {.calibration = ranges});
  const BackendPtr cpu = make_backend("cpu", {.threads = 2});
  const BackendPtr reference = make_backend("reference");
  const Shape shapes[] = {input.shape()};

  std::puts("1. By priority: each op goes to the first backend that takes it");
  Session session(program, {.backends = {accelerator, cpu, reference}});
  session.bind(weights);
  print_plan(session.report(shapes));
  const std::string last = op_names(program).back();
  for (const std::string& line : session.explain(last, shapes)) {
    std::printf("  %s? %s\n", last.c_str(), line.c_str());
  }
  const Buffer scores = session.forward({input})[0];

  std::puts("2. By views: each op goes where it is put");
  const std::size_t ops = op_names(program).size();
  Session split(program, std::vector<BoundView>{{accelerator, view(program, 0, 2)},
                                                {cpu, view(program, 2, ops)}});
  split.bind(weights);
  print_plan(split.report(shapes));
  Session exact(program, {.backends = {reference}});
  exact.bind(weights);
  const Buffer truth = exact.forward({input})[0];
  std::printf("  largest difference from the reference: NPU %.4f, split %.4f\n",
              static_cast<double>(largest_difference(scores, truth)),
              static_cast<double>(largest_difference(split.forward({input})[0], truth)));

  std::puts("3. Options are fixed by apply()");
  Session watched(program, {.backends = {accelerator, cpu, reference}});
  watched.bind(weights);
  const auto trace = std::make_shared<Trace>();
  int calls = 0;
  watched.set_merge(false);  // every op by itself
  watched.enable_time_profile(true);
  watched.set_trace(trace);
  watched.set_dump_outputs((folder / "outputs").string(), "SFT");
  watched.set_post_callback([&](const StepEvent& event) {
    if (++calls == 1)
      std::printf("  after %s on %s\n", event.values[0].c_str(),
                  std::string(event.backend.name()).c_str());
  });
  watched.apply();
  try {
    watched.set_merge(true);
  } catch (const Error& error) {
    std::printf("  %d: %s\n", number(error.code()), error.what());
  }
  watched.forward({input});
  std::printf("  %d steps, %.2f ms in all\n", calls, milliseconds(watched.total_time()));
  for (const StepTime& time : watched.step_times()) {
    std::printf("  %-12s %-9s wall %7.3f  mem %6.3f  device %6.3f  other %6.3f ms\n",
                time.values[0].c_str(), time.backend.c_str(), milliseconds(time.wall),
                milliseconds(time.mem), milliseconds(time.device), milliseconds(time.other));
  }
  std::ofstream trace_file(folder / "trace.json");
  trace->write(trace_file);
  trace_file.close();
  if (!trace_file)
    throw Error(Errc::io_error, (folder / "trace.json").string(), "cannot be written");
  std::printf("  %zu events for Perfetto in trace.json, a file per output in outputs/\n",
              trace->size());

  std::puts("4. Step by step");
  for (const std::string& name : op_names(program)) {
    try {
      const Buffer value = session.step_to(name, {input});
      std::printf("  %s is %s\n", name.c_str(), to_string(value.shape()).c_str());
    } catch (const Error& error) {
      if (error.code() != Errc::bad_reference) throw;  // a view: no step makes it
    }
  }

  std::puts("5. Into memory of the caller, here on the device; some ops alone");
  std::vector<Buffer> far{Buffer::allocate(scores.shape(), device->default_mem_region())};
  session.forward({input}, far);
  std::printf("  the scores lie in %s, and are the same: %s\n", far[0].region().name().c_str(),
              largest_difference(far[0], scores) == 0 ? "yes" : "no");
  // A ring: what one run gives is what the next one takes.
  Session ring(session.view(ops - 1, ops));
  std::vector<Buffer> state{far[0].to(cpu_device()->default_mem_region())};
  for (int i = 0; i < 3; ++i) ring.forward({state[0]}, state);
  std::printf("  after three more rounds of %s: %.4f\n", last.c_str(),
              state[0].to_host().at({0, 0}));
  const Session tail = session.view(ops - 1, ops);
  std::printf("  the last op alone is %s\n", op_names(tail.program())[0].c_str());

  std::puts("6. Forks run at the same time, on the same plans and weights");
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, fork = split.fork()]() mutable {
      const Buffer mine = fork.forward({input})[0];
      const Buffer again = fork.forward({input})[0];
      if (largest_difference(mine, again) == 0) ++same;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("  %d of 4 threads got the same bits twice\n", same.load());

  std::puts("7. To a file and back");
  session.save(folder / "digits.snapshot");
  Session loaded = Session::load(folder / "digits.snapshot", {accelerator, cpu, reference});
  std::printf("  a snapshot of %llu bytes computes the same: %s\n",
              static_cast<unsigned long long>(fs::file_size(folder / "digits.snapshot")),
              largest_difference(loaded.forward({input})[0], scores) == 0 ? "yes" : "no");
  try {
    Session::load(folder / "digits.snapshot", {cpu, reference});
  } catch (const Error& error) {
    std::printf("  %s\n", error.message().c_str());
  }
  io::Network network{program, {}};
  for (const auto& [name, weight] : weights->all()) network.weights.emplace(name, weight.to_host());
  io::save_network(network, folder / "digits.json", folder / "digits.raw");
  const io::Network again = io::load_network(folder / "digits.json", folder / "digits.raw");
  std::printf("  as JSON and RAW it comes back the same: %s\n",
              same_program(again.program, program) ? "yes" : "no");
  std::printf("  these files are in %s\n", folder.c_str());
  return 0;
}

/// The folder that is named, or a new one of this user alone.
fs::path folder_for_files(int count, char** arguments) {
  if (count > 2) throw Error(Errc::bad_argument, arguments[2], "is one argument too many");
  if (count == 2) {
    fs::create_directories(arguments[1]);
    return arguments[1];
  }
  std::string name = fs::temp_directory_path() / "tenon_session_tour_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), name);
  }
  return name;
}

}  // namespace

int main(int count, char** arguments) try {
  return tour(folder_for_files(count, arguments));
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
} catch (const std::exception& error) {  // a folder that cannot be made
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(Errc::io_error);
}
