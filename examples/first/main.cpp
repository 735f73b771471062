#include <tenon/tenon.hpp>

#include <cstdio>

using namespace tenon;

template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)

  static Mlp init(const WeightsView& weights) {
    return {nn::Linear<T>::init(weights["up"]), nn::Linear<T>::init(weights["down"])};
  }
  Tensor forward(Tensor x) const { return argmax(down.forward(silu(up.forward(x)))); }
};

int main(int argc, char** argv) try {
  if (argc > 2) throw Error(Errc::bad_argument, argv[2], "is one argument too many");
  const std::string data = argc > 1 ? argv[1] : "examples/data";
  auto file = io::open(data + "/digits_mlp.safetensors");
  auto model = Mlp<>::init(file.view());
  auto device = Device::open("cpu:");
  auto weights = io::load_async(model, file, device);  // while the model compiles
  auto run = compile<&Mlp<>::forward>(model, {Shape({360, 64}, f32)}, device).bind(weights.get());

  auto test = io::open(data + "/digits_test.safetensors");
  auto images = test.at("images").data().reshape({360, 64});
  auto labels = test.at("labels").data();
  HostBuffer digits = run(images.to_device(device)).to_host();
  int right = 0;
  for (std::int64_t i = 0; i < 360; ++i) right += digits.at({i}) == labels.at({i});
  std::printf("%d of 360 handwritten digits recognised\n", right);
  return 0;
} catch (const Error& error) {  // the one type that Tenon throws
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
