#include "digits.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/io/load.hpp>

#include <cstdio>
#include <memory>
#include <string>

using namespace tenon;

int main(int count, char** arguments) try {
  const std::string data = count > 1 ? arguments[1] : "examples/data";
  register_cpu_backend();
  register_reference_backend();
  const DevicePtr cpu = cpu_device();
  auto weights = io::load_buffers(io::open(data + "/digits_mlp.safetensors"), cpu);
  digits::Model model(Eager(std::make_shared<const WeightSet>(std::move(weights))));

  const io::File test = io::open(data + "/digits_test.safetensors");
  const HostBuffer images = test.at("images").data();
  const HostBuffer labels = test.at("labels").data();
  const HostBuffer found = model.forward(images.to_device(cpu)).to_buffer().to_host();
  int right = 0;
  for (std::int64_t i = 0; i < 360; ++i) right += found.at({i}) == labels.at({i});
  std::printf("%d of 360 handwritten digits recognised\n", right);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
