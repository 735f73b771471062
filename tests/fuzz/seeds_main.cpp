// What fuzz_network, fuzz_program and fuzz_session begin with: tenon_fuzz_seeds FOLDER fills
// FOLDER/network, FOLDER/program and FOLDER/session.
#include "fuzz/sections.hpp"
#include "support/random_program.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/io/network.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>
#include <tenon/snapshot.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

Program small_program() {
  Graph graph;
  const Tensor x = graph.input("x", Shape({symbol("S"), 4}, f32));
  const Tensor h = relu(linear(x, graph.constant("w", Shape({8, 4}, f32))));
  const Tensor y = softmax(linear(h, graph.constant("v", Shape({3, 8}, f32))) + iota(3, f32), -1);
  return graph.program({&y, 1});
}

std::map<std::string, HostBuffer> small_weights() {
  return {{"w", HostBuffer::zeros(Shape({8, 4}, f32))},
          {"v", HostBuffer::zeros(Shape({3, 8}, f32))}};
}

std::string network_seed(const fs::path& scratch, const io::Network& network) {
  io::save_network(network, scratch / "n.json", scratch / "n.raw");
  const std::string parts[] = {read(scratch / "n.json"), read(scratch / "n.raw")};
  return join_sections(parts);
}

std::string session_seed(const fs::path& scratch) {
  register_reference_backend();
  Session session(small_program(), {.backends = {make_backend("reference")}});
  std::map<std::string, Buffer> weights;
  for (const auto& [name, array] : small_weights()) weights[name] = array.to_device(cpu_device());
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  session.forward({HostBuffer::zeros(Shape({2, 4}, f32)).to_device(cpu_device())});
  session.save(scratch / "s.snap");
  const Snapshot snapshot = Snapshot::open(scratch / "s.snap");
  std::vector<std::string> parts;
  for (const char* name : session_sections) {
    parts.emplace_back(snapshot.find(name) != nullptr ? snapshot.text(name) : "");
  }
  return join_sections(parts);
}

void write_seeds(const fs::path& folder) {
  const fs::path scratch = folder / "scratch";
  fs::create_directories(scratch);
  write(folder / "network" / "small", network_seed(scratch, {small_program(), small_weights()}));
  write(folder / "session" / "small", session_seed(scratch));
  write(folder / "program" / "small", print(small_program()));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Program program = RandomProgram(seed).make({.callees = static_cast<int>(seed % 3)});
    write(folder / "program" / std::to_string(seed), print(program));
    write(folder / "network" / std::to_string(seed), network_seed(scratch, {program, {}}));
  }
  fs::remove_all(scratch);
}

}  // namespace
}  // namespace tenon::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tenon_fuzz_seeds FOLDER\n");
    return 2;
  }
  tenon::testing::write_seeds(argv[1]);
  return 0;
}
