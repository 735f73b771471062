// A network as JSON and RAW: what is written is read back, and invalid files are refused.
#include "support/expect_error.hpp"
#include "temp_folder.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/io/network.hpp>
#include <tenon/log.hpp>
#include <tenon/session.hpp>

#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

constexpr std::string_view program_text = R"(# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("small", opset=1)

def layer(x: f32[B, 4], i: i64, s: Scope):
    w: f32[4, 4] = const(s, "weight")
    y: f32[B, 4] = linear(x, w)
    return y

def forward(x: f32[B, 4]):
    s = scope("layers")
    c = pack(x)
    t = repeat(layer, 2, c, s)
    y: f32[B, 4] = item(t, 0)
    k: f32[4] = const("bias")
    z: f32[B, 4] = add(y, k)
    n: f32[B, 4] = softmax(z, axis=1)
    return n
)";

HostBuffer ramp(const Shape& shape, float first) {
  HostBuffer array = HostBuffer::zeros(shape);
  float value = first;
  for (float& element : array.mutable_values<float>()) element = value++;
  return array;
}

io::Network small() {
  io::Network net{parse(program_text), {}};
  net.weights.emplace("layers.0.weight", ramp(Shape({4, 4}, f32), 0));
  net.weights.emplace("layers.1.weight", ramp(Shape({4, 4}, f32), 16));
  net.weights.emplace("bias", ramp(Shape({4}, f32), -2));
  net.program.folded.emplace("table", ramp(Shape({3}, f32), 7));
  return net;
}

/// The small network on disk, and its JSON to be changed.
class Files {
 public:
  Files() {
    io::save_network(small(), json, raw);
    text = read_bytes(json);
    bytes = read_bytes(raw);
  }

  /// Puts `to` in place of the only `from`.
  Files& change(std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    INFO(from << " in\n" << text);
    REQUIRE(at != std::string::npos);
    REQUIRE(text.find(from, at + 1) == std::string::npos);
    text.replace(at, from.size(), to);
    return *this;
  }
  io::Network load(const io::NetworkOptions& options = {}) {
    folder.write("net.json", text);
    folder.write("net.raw", bytes);
    return io::load_network(json, {}, options);
  }
  std::string refused(Errc code, const io::NetworkOptions& options = {}) {
    return expect_error(code, [&] { load(options); });
  }

  TempFolder folder;
  std::filesystem::path json = folder / "net.json";
  std::filesystem::path raw = folder / "net.raw";
  std::string text;
  std::string bytes;
};

/// The same without the change before.
std::string refused(Errc code, std::string_view from, std::string_view to) {
  return Files().change(from, to).refused(code);
}

/// A network of one function with these nodes, whose input is x and whose result is `result`.
std::string with_nodes(std::string_view nodes, std::string_view result = "y") {
  return std::string(R"({"format": "tenon-network", "version": 1, "name": "n", "opset": 1,)"
                     R"("entry": "forward", "raw": {"file": "net.raw", "size_bytes": 0},)"
                     R"("constants": [], "functions": [{"name": "forward", "parameters": )"
                     R"([{"name": "x", "type": {"dtype": "f32", "shape": [1, 1, 4, 4]}}],)"
                     R"("nodes": [)") +
         std::string(nodes) + R"(], "results": [")" + std::string(result) + R"("]}]})";
}

std::string refused_nodes(Errc code, std::string_view nodes) {
  const TempFolder folder;
  folder.write("net.raw", "");
  const auto json = folder.write("net.json", with_nodes(nodes));
  return expect_error(code, [&] { io::load_network(json); });
}

io::Network load_nodes(std::string_view nodes, std::string_view result = "y") {
  const TempFolder folder;
  folder.write("net.raw", "");
  return io::load_network(folder.write("net.json", with_nodes(nodes, result)));
}

}  // namespace

TEST_CASE("network: what is saved comes back") {
  Files files;
  for (const io::Access access : {io::Access::map, io::Access::read}) {
    const io::Network net = files.load({.access = access});
    CHECK(same_program(net.program, parse(program_text)));
    CHECK(print(net.program) == program_text);
    REQUIRE(net.weights.size() == 3);
    CHECK(net.weights.at("layers.1.weight").at({0, 1}) == 17);
    CHECK(net.weights.at("bias").at({3}) == 1);
    REQUIRE(net.program.folded.size() == 1);
    CHECK(net.program.folded.at("table").at({2}) == 9);
    CHECK((net.weights.at("bias").ownership() == HostBuffer::Ownership::mapped) ==
          (access == io::Access::map));
  }
  CHECK(files.folder.entries() == 2);
}

TEST_CASE("network: a loaded network computes what the saved one did") {
  register_reference_backend();
  const HostBuffer x = ramp(Shape({3, 4}, f32), -5);
  const auto run = [&](const io::Network& net) {
    std::map<std::string, Buffer> weights;
    for (const auto& [name, data] : net.weights) {
      weights.emplace(name, data.to_device(cpu_device()));
    }
    Session session(net.program, {.backends = {make_backend("reference")}});
    session.bind(std::make_shared<WeightSet>(std::move(weights)));
    const HostBuffer y = session.forward({x.to_device(cpu_device())}).at(0).to_host();
    const auto values = y.values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> expected = run(small());
  CHECK(expected.size() == 12);
  CHECK(run(Files().load()) == expected);
}

TEST_CASE("network: the files, letter by letter") {
  const TempFolder folder;
  io::Network net{parse(R"(# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("one", opset=1)

def forward(x: f16[N, _]):
    y = softmax(x, axis=1)
    return y
)"),
                  {}};
  net.weights.emplace("b", ramp(Shape({2}, f32), 1));
  net.weights.emplace("a", ramp(Shape({}, f32), 0));
  io::save_network(net, folder / "one.json", folder / "one.raw");
  const std::string raw = read_bytes(folder / "one.raw");
  CHECK(raw.size() == 64 + 8);
  CHECK(read_bytes(folder / "one.json") == R"({
  "format": "tenon-network",
  "version": 1,
  "name": "one",
  "opset": 1,
  "entry": "forward",
  "raw": {"file":"one.raw","size_bytes":72,"id":"a7501286f1a3fd13"},
  "constants": [
    {"name":"a","type":{"dtype":"f32","shape":[]},"offset":0,"size_bytes":4,"xxh3":"48b2c92616fc193d"},
    {"name":"b","type":{"dtype":"f32","shape":[2]},"offset":64,"size_bytes":8,"xxh3":"4de8d78f7134f4b7"}
  ],
  "functions": [
    {
      "name": "forward",
      "parameters": [
        {"name":"x","type":{"dtype":"f16","shape":["N","_"]}}
      ],
      "nodes": [
        {"name":"y","op":"softmax","inputs":["x"],"attributes":{"axis":1}}
      ],
      "results": ["y"]
    }
  ]
}
)");
}

TEST_CASE("network: the example of docs/network-json.md is what is written") {
  const std::string page = read_bytes("docs/network-json.md");
  const std::size_t begin = page.find("```json\n") + 8;
  const std::string example = page.substr(begin, page.find("```", begin) - begin);
  io::Network net = small();
  net.program.folded.clear();
  const TempFolder folder;
  io::save_network(net, folder / "net.json", folder / "net.raw");
  CHECK(read_bytes(folder / "net.json") == example);
}

TEST_CASE("network: RAW by its name, by another, and in a folder below") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "data");
  io::save_network(small(), folder / "net.json", folder / "data/weights.raw");
  CHECK(contains(read_bytes(folder / "net.json"), R"("file":"data/weights.raw")"));
  CHECK(io::load_network(folder / "net.json").weights.size() == 3);
  std::filesystem::rename(folder / "data/weights.raw", folder / "elsewhere");
  expect_error(Errc::not_found, [&] { io::load_network(folder / "net.json"); });
  CHECK(io::load_network(folder / "net.json", folder / "elsewhere").weights.size() == 3);
  // Outside the folder of the JSON only the last name is kept, and the path is the caller's.
  io::save_network(small(), folder / "data/net.json", folder / "net.raw");
  CHECK(contains(read_bytes(folder / "data/net.json"), R"("file":"net.raw")"));
  CHECK(io::load_network(folder / "data/net.json", folder / "net.raw").weights.size() == 3);
}

TEST_CASE("network: what cannot be saved") {
  const TempFolder folder;
  const auto refuse = [&](Errc code, const io::Network& net) {
    expect_error(code, [&] { io::save_network(net, folder / "n.json", folder / "n.raw"); });
    CHECK(folder.entries() == 0);
  };
  io::Network net = small();
  expect_error(Errc::bad_argument,
               [&] { io::save_network(net, folder / "n.json", folder / "./n.json"); });
  net.weights.emplace("table", ramp(Shape({3}, f32), 7));
  refuse(Errc::duplicate_name, net);
  net = small();
  net.weights.emplace("empty", HostBuffer());
  refuse(Errc::bad_argument, net);
  net = small();
  net.weights.emplace("\xFF", ramp(Shape({1}, f32), 0));
  refuse(Errc::bad_encoding, net);
  net = small();
  net.weights.at("layers.1.weight") = ramp(Shape({2, 8}, f32), 0);
  refuse(Errc::bad_shape, net);
  net = small();
  net.program.functions[0].body[0].text = "\xFF";
  refuse(Errc::bad_encoding, net);
  net = small();
  net.program.entry = "nowhere";
  refuse(Errc::bad_reference, net);
  expect_error(Errc::io_error,
               [&] { io::save_network(small(), folder / "no/n.json", folder / "n.raw"); });
  CHECK(folder.entries() == 0);
}

TEST_CASE("network: weights that are cut short while they are saved leave the old pair") {
  const TempFolder folder;
  const auto json = folder / "net.json", raw = folder / "net.raw";
  io::save_network(small(), json, raw);
  const std::string before = read_bytes(json) + read_bytes(raw);
  const std::string weights((std::size_t{1} << 20) * sizeof(float), '\1');
  const auto path = folder.write("weights", weights);
  const auto file = io::InputFile::open(path, io::Access::guarded);
  if (!file->is_mapped()) return;
  io::Network net{parse("# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n"
                        "module(\"m\", opset=1)\n\ndef forward():\n"
                        "    w: f32[1048576] = const(\"w\")\n    return w\n"),
                  {}};
  net.weights.emplace("w", HostBuffer::borrow(const_cast<std::byte*>(file->mapped().data()),
                                              Shape({1 << 20}, f32)));
  const auto save = [&] { io::save_network(net, json, raw, [&] { file->check_unchanged(); }); };
  std::filesystem::resize_file(path, 0);
  expect_error(Errc::io_error, save);
  CHECK(read_bytes(json) + read_bytes(raw) == before);
  CHECK(io::load_network(json).weights.size() == 3);
}

TEST_CASE("network: a save that is killed leaves the old pair or the new one") {
  const TempFolder folder;
  const auto json = folder / "net.json", raw = folder / "net.raw";
  const auto save = [&](float first) {
    io::Network net = small();
    for (auto& [name, data] : net.weights) data = ramp(data.shape(), first);
    net.weights.emplace("large", ramp(Shape({1 << 14}, f32), first));
    io::save_network(net, json, raw);
  };
  save(0);
  std::minstd_rand random(7);
  for (int round = 0; round < 60; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        for (int i = 1;; ++i) save(static_cast<float>(i % 2));
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const io::Network found = io::load_network(json);
    const float first = found.weights.at("bias").values<float>()[0];
    CHECK((first == 0 || first == 1));
    CHECK(found.weights.at("large").values<float>()[0] == first);
  }
  // The next save takes away what the killed ones have left; temporary files once they are old.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const bool is_temporary = entry.path().extension() == ".tmp";
    if (!is_temporary) continue;
    std::filesystem::last_write_time(
        entry.path(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  save(3);
  CHECK(folder.entries() == 2);
  CHECK(io::load_network(json).weights.at("bias").values<float>()[0] == 3);
}

TEST_CASE("network: a save that was cut off after its JSON is found whole") {
  const TempFolder folder;
  const auto json = folder / "net.json", raw = folder / "net.raw";
  io::save_network(small(), json, raw);
  const std::string text = read_bytes(json);
  const std::size_t at = text.find("\"id\":\"") + 6;
  const std::string id = text.substr(at, 16);
  // As between the two renames: the old RAW has its place, the new one its id.
  std::filesystem::rename(raw, folder / ("net.raw." + id));
  folder.write("net.raw", "of an older save");
  CHECK(io::load_network(json).weights.size() == 3);
  CHECK(io::load_network(json, raw).weights.size() == 3);
  io::save_network(small(), json, raw);
  CHECK(folder.entries() == 2);
  CHECK(io::load_network(json).weights.size() == 3);
  // An id that is none, and none at all.
  const std::string member = ",\"id\":\"" + id + "\"";
  std::string changed = text;
  folder.write("net.json", changed.replace(changed.find(id), 16, "../../../../etc/"));
  expect_error(Errc::syntax, [&] { io::load_network(json); });
  changed = text;
  folder.write("net.json", changed.erase(changed.find(member), member.size()));
  CHECK(io::load_network(json).weights.size() == 3);
}

TEST_CASE("network: what a save replaces keeps its mode, and a link stays one") {
  const TempFolder folder;
  const auto json = folder / "net.json", raw = folder / "net.raw";
  io::save_network(small(), json, raw);
  std::filesystem::permissions(
      raw, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  io::save_network(small(), json, raw);
  CHECK(std::filesystem::status(raw).permissions() ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  std::filesystem::rename(raw, folder / "elsewhere");
  std::filesystem::create_symlink("elsewhere", raw);
  io::save_network(small(), json, raw);
  CHECK(std::filesystem::is_symlink(raw));
  CHECK(io::load_network(json).weights.size() == 3);
  std::filesystem::remove(raw);
  std::filesystem::create_directory(raw);
  expect_error(Errc::not_regular_file, [&] { io::save_network(small(), json, raw); });
}

TEST_CASE("network J01: RAW of another length") {
  Files files;
  const std::string whole = files.bytes;
  for (std::size_t size = 0; size < whole.size(); size += 13) {
    files.bytes = whole.substr(0, size);
    files.refused(Errc::truncated);
  }
  files.bytes = whole + '\0';
  files.refused(Errc::trailing_data);
  // What the table leaves over is found as well, whatever the JSON says about the whole.
  const std::string said = R"("size_bytes":)" + std::to_string(whole.size()) + R"(,"id")";
  files.bytes = whole + std::string(64, '\0');
  files.change(said, R"("size_bytes":)" + std::to_string(whole.size() + 64) + R"(,"id")");
  files.refused(Errc::hole);
}

TEST_CASE("network J02: the name of RAW stays in the folder") {
  for (const char* name : {"../net.raw", "/etc/passwd", "a/../../net.raw", "..\\\\net.raw",
                           "net.raw\\u0000", "", ".", "./net.raw", "a//net.raw", ".."}) {
    INFO(name);
    refused(Errc::path_escape, R"("file":"net.raw")", R"("file":")" + std::string(name) + '"');
  }
  refused(Errc::not_found, R"("file":"net.raw")", R"("file":"absent.raw")");
  Files files;
  std::filesystem::create_directory(files.folder / "below");
  files.change(R"("file":"net.raw")", R"("file":"below")").refused(Errc::not_regular_file);
  refused(Errc::bad_type, R"("file":"net.raw")", R"("file":7)");
}

TEST_CASE("network J02: links to RAW stay in the folder too") {
  const TempFolder elsewhere;
  const TempFolder folder;
  io::save_network(small(), folder / "net.json", folder / "net.raw");
  std::filesystem::rename(folder / "net.raw", elsewhere / "blob");
  const auto load = [&] { return io::load_network(folder / "net.json").weights.size(); };
  std::filesystem::create_symlink(elsewhere / "blob", folder / "net.raw");
  expect_error(Errc::path_escape, load);
  CHECK(io::load_network(folder / "net.json", folder / "net.raw").weights.size() == 3);

  std::filesystem::copy(elsewhere / "blob", folder / "blob");
  std::filesystem::remove(folder / "net.raw");
  std::filesystem::create_symlink("blob", folder / "net.raw");
  CHECK(load() == 3);
}

TEST_CASE("network J05: offsets") {
  const std::string_view entry = R"("offset":64,"size_bytes":16)";
  for (const char* to :
       {R"("offset":18446744073709551552,"size_bytes":16)", R"("offset":-64,"size_bytes":16)",
        R"("offset":1e19,"size_bytes":16)", R"("offset":64.0,"size_bytes":16)",
        R"("offset":"64","size_bytes":16)", R"("offset":640000,"size_bytes":16)"}) {
    INFO(to);
    refused(Errc::bad_offset, entry, to);
  }
  refused(Errc::bad_alignment, entry, R"("offset":68,"size_bytes":16)");
  refused(Errc::overlap, entry, R"("offset":0,"size_bytes":16)");
  refused(Errc::bad_shape, entry, R"("offset":64,"size_bytes":9223372036854775807)");
  // A hole where the constant was.
  Files files;
  const std::size_t at = files.text.find("{\"name\":\"bias\"");
  files.text.erase(at, files.text.find('\n', at) - at);
  files.refused(Errc::hole);
}

TEST_CASE("network J06: graphs that are none") {
  CHECK(
      contains(refused_nodes(Errc::unknown_op, R"({"name":"y","op":"frobnicate","inputs":["x"]})"),
               "'frobnicate'"));
  CHECK(contains(refused_nodes(Errc::bad_reference, R"({"name":"y","op":"relu","inputs":["z"]})"),
                 "/functions/0/nodes/0/inputs/0"));
  refused_nodes(
      Errc::duplicate_name,
      R"({"name":"y","op":"relu","inputs":["x"]},{"name":"y","op":"relu","inputs":["x"]})");
  refused_nodes(
      Errc::duplicate_name,
      R"({"name":"x","op":"relu","inputs":["x"]},{"name":"y","op":"relu","inputs":["x"]})");
  CHECK(
      contains(refused_nodes(Errc::cycle, R"({"name":"y","op":"relu","inputs":["y"]})"), "y -> y"));
  // b and c feed each other; a and y only hang on.
  CHECK(contains(refused_nodes(Errc::cycle, R"({"name":"y","op":"relu","inputs":["c"]},
                   {"name":"a","op":"relu","inputs":["x"]},
                   {"name":"b","op":"add","inputs":["c","a"]},
                   {"name":"c","op":"relu","inputs":["b"]})"),
                 "c -> b -> c"));
  refused_nodes(Errc::bad_argument, R"({"name":"y","op":"relu","inputs":["x","x"]})");
  refused_nodes(Errc::bad_argument, R"({"name":"y","op":"relu"})");
  refused_nodes(Errc::unknown_op, R"({"name":"y","op":"call","function":"f","inputs":["x"]})");
  refused_nodes(Errc::syntax, R"({"name":"y y","op":"relu","inputs":["x"]})");
  refused_nodes(Errc::syntax, R"({"name":"def","op":"relu","inputs":["x"]})");
  refused_nodes(Errc::bad_type, R"({"name":"y","op":"relu","inputs":"x"})");
  refused_nodes(Errc::bad_type, R"({"name":7,"op":"relu","inputs":["x"]})");
  refused_nodes(Errc::bad_type, R"(7)");
  refused_nodes(Errc::bad_key, R"({"op":"relu","inputs":["x"]})");
  expect_error(Errc::bad_reference,
               [] { load_nodes(R"({"name":"y","op":"relu","inputs":["x"]})", "z"); });
}

TEST_CASE("network: nodes in any order") {
  const io::Network net = load_nodes(R"({"name":"y","op":"add","inputs":["a","b"]},
    {"name":"b","op":"neg","inputs":["a"]},{"name":"a","op":"relu","inputs":["x"]},
    {"name":"c","op":"neg","inputs":["x"]})");
  std::string order;
  for (const Instruction& node : net.program.main().body) {
    order += net.program.main().values[node.result].name;
  }
  CHECK(order == "abyc");  // the first in the document of those that may come next
}

TEST_CASE("network J07: attributes") {
  const auto conv = [](std::string_view attributes) {
    return R"({"name":"w","op":"full","attributes":{"dims":[1,1,2,2],"value":1}},)"
           R"({"name":"y","op":"conv2d","inputs":["x","w"],"attributes":{)" +
           std::string(attributes) + "}}";
  };
  REQUIRE(find_op("conv2d") != nullptr);
  for (const char* bad :
       {R"("stride":[0,1])", R"("dilation":[1,0])", R"("groups":0)", R"("groups":3)",
        R"("padding":[-1,0])", R"("stride":"3")", R"("stride":3)", R"("stride":[1.5,1])",
        R"("stride":[1,9223372036854775808])", R"("groups":true)", R"("groups":1.0)",
        R"("groups":null)", R"("has_bias":1)", R"("kernel":[3,3])",
        R"("stride":[1,1,1,1,1,1,1,1,1])"}) {
    INFO(bad);
    const std::string what = refused_nodes(Errc::bad_attribute, conv(bad));
    CHECK(contains(what, "net.json:/functions/0/nodes/1"));
    CHECK(contains(what, "conv2d"));
    CHECK(contains(what, "'y'"));
  }
}

TEST_CASE("network: real attributes that JSON has no numbers for") {
  const io::Network net = load_nodes(R"({"name":"y","op":"clamp","inputs":["x"],)"
                                     R"("attributes":{"min":"-inf","max":3}})");
  CHECK(contains(print(net.program), "max=3.0"));
  refused_nodes(Errc::bad_attribute,
                R"({"name":"y","op":"clamp","inputs":["x"],"attributes":{"min":"Infinity"}})");
}

TEST_CASE("network J09: a long chain, the last node first") {
  constexpr int length = 100'000;
  std::string nodes;
  for (int i = length; i > 0; --i) {
    nodes += R"({"name":"n)" + std::to_string(i) + R"(","op":"relu","inputs":[")" +
             (i == 1 ? "x" : "n" + std::to_string(i - 1)) + R"("]})" + (i == 1 ? "" : ",");
  }
  const io::Network net = load_nodes(nodes, "n" + std::to_string(length));
  CHECK(net.program.main().body.size() == length);
  CHECK(net.program.main().values[1].name == "n1");
}

TEST_CASE("network J10: what is not JSON") {
  for (const auto& [from, to] : {std::pair{R"("version": 1)", R"("version": NaN)"},
                                 {R"("version": 1)", R"("version": Infinity)"},
                                 {R"("version": 1)", R"("version": 1e400)"},
                                 {R"("opset": 1,)", R"("opset": 1,,)"},
                                 {R"("opset": 1,)", R"("opset": 1, // one)"}}) {
    INFO(to);
    CHECK(contains(refused(Errc::syntax, from, to), "net.json:"));
  }
  refused(Errc::syntax, R"("version": 1)", R"("version": )" + std::string(400, '9'));
  refused(Errc::bad_type, R"("version": 1)", R"("version": 18446744073709551615)");
  refused(Errc::duplicate_name, R"("opset": 1,)", R"("opset": 1, "opset": 1,)");
  Files files;
  files.text = std::string(100'000, '[');
  files.refused(Errc::depth_limit);
  files.text = "[]";
  files.refused(Errc::bad_type);
  files.text = "{}";
  files.refused(Errc::bad_key);
}

TEST_CASE("network J11: versions and unknown keys") {
  refused(Errc::unsupported_version, R"("version": 1)", R"("version": 999)");
  refused(Errc::unsupported_version, R"("opset": 1)", R"("opset": 2)");
  refused(Errc::bad_magic, R"("tenon-network")", R"("other")");
  refused(Errc::bad_type, R"("version": 1)", R"("version": "1")");

  Files files;
  files.change(R"("opset": 1,)", R"("opset": 1, "comment": "hello",)")
      .change(R"("op":"softmax")", R"("op":"softmax","color":"red")");
  std::vector<std::string> logged;
  LogSink previous =
      set_log_sink([&](LogLevel, std::string_view text) { logged.emplace_back(text); });
  CHECK(files.load().weights.size() == 3);
  set_log_sink(std::move(previous));
  REQUIRE(logged.size() == 1);
  CHECK(contains(logged[0], "2 keys"));
  CHECK(contains(logged[0], "/comment"));
  CHECK(contains(files.refused(Errc::bad_key, {.strict = true}), "'comment'"));
}

TEST_CASE("network J12: types that the bytes do not have") {
  const std::string_view bias = R"("name":"bias","type":{"dtype":"f32","shape":[4]})";
  refused(Errc::bad_shape, bias, R"("name":"bias","type":{"dtype":"f16","shape":[4]})");
  refused(Errc::bad_shape, bias, R"("name":"bias","type":{"dtype":"f32","shape":[5]})");
  refused(Errc::bad_shape, bias, R"("name":"bias","type":{"dtype":"f32","shape":["N"]})");
  // As many bytes, but the graph says another type.
  refused(Errc::bad_shape, bias, R"("name":"bias","type":{"dtype":"i32","shape":[4]})");
  refused(Errc::unsupported_dtype, bias, R"("name":"bias","type":{"dtype":"f8","shape":[4]})");
  refused(Errc::bad_shape, bias, R"("name":"bias","type":{"dtype":"f32","shape":[-4]})");
  refused(Errc::shape_overflow, bias,
          R"("name":"bias","type":{"dtype":"f32","shape":[4294967296,4294967296]})");
  refused(Errc::bad_shape, bias,
          R"("name":"bias","type":{"dtype":"f32","shape":[1,1,1,1,1,1,1,1,4]})");
  refused(Errc::duplicate_name, bias, R"("name":"table","type":{"dtype":"f32","shape":[4]})");
  // Of a constant that a loop names: as many bytes, in another form.
  const std::string_view layer = R"("name":"layers.1.weight","type":{"dtype":"f32","shape":[4,4]})";
  const std::string what = refused(
      Errc::bad_shape, layer, R"("name":"layers.1.weight","type":{"dtype":"f32","shape":[2,8]})");
  CHECK(contains(what, "'layers.1.weight'"));
}

TEST_CASE("network: one constant has one type in the graph") {
  // What an iteration of the loop takes for a matrix.
  const std::string what =
      refused(Errc::shape_mismatch, R"("constant":"bias")", R"("constant":"layers.0.weight")");
  CHECK(contains(what, "'layers.0.weight'"));
}

TEST_CASE("network: every bit of RAW is checked") {
  Files files;
  const std::string whole = files.bytes;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    INFO("bit " << bit);
    files.bytes = whole;
    files.bytes[bit / 8] = static_cast<char>(files.bytes[bit / 8] ^ (1 << (bit % 8)));
    files.refused(Errc::corrupt);
  }
  // Only where it was asked for.
  files.bytes = whole;
  files.bytes[0] = static_cast<char>(files.bytes[0] ^ 1);
  CHECK(files.load({.verify_constants = false}).weights.size() == 3);
}

TEST_CASE("network: JSON cut short at every byte") {
  Files files;
  const std::string whole = files.text;
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    INFO(size);
    files.text = whole.substr(0, size);
    files.refused(Errc::syntax);
  }
}

}  // namespace tenon::testing
