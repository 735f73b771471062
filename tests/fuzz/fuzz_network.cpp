// Any bytes as a network's JSON and RAW: what is accepted can be saved, loads again as the same,
// and runs alike on the reference and the CPU backend.
#include "fuzz/memory_file.hpp"
#include "fuzz/run_program.hpp"
#include "fuzz/sections.hpp"
#include "fuzz/targets.hpp"

#include <tenon/io/network.hpp>

#include <optional>
#include <string>

namespace tenon::testing {

void fuzz_network(Bytes bytes) {
  const auto parts = split_sections(bytes, 2);
  if (parts.size() < 2) return;
  const MemoryPath json(parts[0]), raw(parts[1]);
  std::optional<io::Network> network;
  try {
    network = io::load_network(json.path(), raw.path(), {.verify_constants = false});
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
    return;
  }
  const std::string name = scratch_file("network");
  io::save_network(*network, name + ".json", name + ".raw");
  const io::Network again = io::load_network(name + ".json");
  if (print(again.program) != print(network->program)) fail("saved as something else");
  if (again.weights.size() != network->weights.size()) fail("saved with other weights");
  run_program(network->program, network->weights);
}

}  // namespace tenon::testing
