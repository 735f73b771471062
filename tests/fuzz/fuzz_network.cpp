// Any bytes as a network's JSON and RAW: what is accepted can be saved, and loads again as the
// same.
#include "fuzz/memory_file.hpp"
#include "fuzz/sections.hpp"

#include <tenon/io/network.hpp>

#include <optional>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  using testing::MemoryPath;
  const auto parts = testing::split_sections({data, size}, 2);
  if (parts.size() < 2) return 0;
  const MemoryPath json(parts[0]), raw(parts[1]);
  std::optional<io::Network> network;
  try {
    network = io::load_network(json.path(), raw.path(), {.verify_constants = false});
  } catch (const Error& error) {
    if (error.code() == Errc::internal) testing::fail("an internal error");
    return 0;
  }
  const std::string name = testing::scratch_file("network");
  io::save_network(*network, name + ".json", name + ".raw");
  const io::Network again = io::load_network(name + ".json");
  if (print(again.program) != print(network->program)) testing::fail("saved as something else");
  if (again.weights.size() != network->weights.size()) testing::fail("saved with other weights");
  return 0;
}
