// The life cycle of a model, from a file on disk to a freed result, in nine steps, with the type
// that represents it in each.
#include <tenon/tenon.hpp>

#include <cstdio>

using namespace tenon;

/// A model is a struct of its layers. Its parameter T is the type of the weights: Tensor while
/// `forward` is recorded, Buffer when there is data.
template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)

  static Mlp init(const WeightsView& weights) {
    return {nn::Linear<>::init(weights["up"]), nn::Linear<>::init(weights["down"])};
  }
  Tensor forward(const Tensor& x) const { return down.forward(silu(up.forward(x))); }
};

int main() try {
  // 1  Open the file: names and shapes, no weights yet.
  const io::File file = io::open("examples/data/digits_mlp.safetensors");
  for (const io::TensorEntry& entry : file.tensors()) {
    std::printf("1  %-12s %s\n", entry.name.c_str(), to_string(entry.shape).c_str());
  }

  // 2  Make the model struct: shapes become tensors.
  const Mlp<Tensor> model = Mlp<>::init(file.view());

  // 4  Load the weights on another thread, while ...
  const DevicePtr device = Device::open("cpu:");
  io::LoadOptions options;
  options.progress = [](const io::LoadProgress& at) {
    std::printf("4  %3.0f %% loaded\n",
                100.0 * static_cast<double>(at.done_bytes) / static_cast<double>(at.total_bytes));
  };
  std::future<Bufferized<Mlp<>>> loading = io::load_async(model, file, device, options);

  // 3  ... the model compiles: its forward is recorded, optimised and planned.
  const Exe<&Mlp<>::forward> exe = compile<&Mlp<>::forward>(model, {Shape({360, 64}, f32)}, device);

  // 5  Bind the weights to the executable. `loading.get()` waits, and throws the load's error.
  BoundExe<&Mlp<>::forward> run = exe.bind(loading.get());
  const PlanReport plan = exe.report();
  std::printf("3  activations: %lld bytes planned, %lld without reuse\n",
              static_cast<long long>(plan.slab_bytes),
              static_cast<long long>(plan.activation_bytes));

  // 6  The input: an array in CPU memory, then on the device.
  const io::File digits = io::open("examples/data/digits_test.safetensors");
  const HostBuffer images = digits.at("images").data().reshape({360, 64});
  const Buffer x = images.to_device(device);

  // 7  Call it.
  const Buffer y = run(x);

  // 8  Back to CPU memory, and to the user.
  const HostBuffer logits = y.to_host();
  const HostBuffer labels = digits.at("labels").data();
  int right = 0;
  for (std::int64_t i = 0; i < 360; ++i) {
    std::int64_t best = 0;
    for (std::int64_t digit = 1; digit < 10; ++digit) {
      if (logits.at({i, digit}) > logits.at({i, best})) best = digit;
    }
    right += best == static_cast<std::int64_t>(labels.at({i})) ? 1 : 0;
  }
  std::printf("8  %d of 360 handwritten digits recognised\n", right);
  return 0;
  // 9  Destructors give everything back: buffers, plans, the mapped file.
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
