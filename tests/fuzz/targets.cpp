#include "fuzz/targets.hpp"

#include "fuzz/memory_file.hpp"
#include "fuzz/sections.hpp"
#include "support/random_program.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/io/network.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/text/chat.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> files(const char* extension) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator("tests/io/data")) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> seeds;
  for (const fs::path& path : paths) seeds.push_back(read(path));
  return seeds;
}

Program small_program() {
  Graph graph;
  const Tensor x = graph.input("x", Shape({symbol("S"), 4}, f32));
  const Tensor h = relu(linear(x, graph.constant("w", Shape({8, 4}, f32))));
  const Tensor logits = linear(h, graph.constant("v", Shape({3, 8}, f32)));
  const Tensor y = softmax(logits + unsqueeze(iota(x, 0, f32), 1), -1);
  return graph.program({&y, 1});
}

/// One constant under three roofs: by its name, through a scope, and in a loop.
constexpr const char* shared_constant = R"(# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("shared", opset=1)

def block(x: f32[2, 4], i: i64, s: Scope):
    w: f32[2, 4] = const(s, "w")
    y = add(x, w)
    return y

def forward(x: f32[2, 4]):
    s = scope("blk")
    t = pack(x)
    r = repeat(block, 2, t, s)
    y = item(r, 0)
    v: f32[2, 4] = const("blk.0.w")
    one = scope("blk.1")
    u: f32[2, 4] = const(one, "w")
    a = add(y, v)
    b = add(a, u)
    return b
)";

std::map<std::string, HostBuffer> shared_weights() {
  return {{"blk.0.w", HostBuffer::zeros(Shape({2, 4}, f32))},
          {"blk.1.w", HostBuffer::zeros(Shape({2, 4}, f32))}};
}

std::map<std::string, HostBuffer> small_weights() {
  return {{"w", HostBuffer::zeros(Shape({8, 4}, f32))},
          {"v", HostBuffer::zeros(Shape({3, 8}, f32))}};
}

std::string network_seed(const io::Network& network) {
  const std::string name = scratch_file("seed");
  io::save_network(network, name + ".json", name + ".raw");
  const std::string parts[] = {read(name + ".json"), read(name + ".raw")};
  fs::remove(name + ".json");
  fs::remove(name + ".raw");
  return join_sections(parts);
}

/// A session's snapshot: the file, and its sections.
std::pair<std::string, std::string> session_seeds(Program program,
                                                  const std::map<std::string, HostBuffer>& arrays) {
  register_reference_backend();
  Session session(std::move(program), {.backends = {make_backend("reference")}});
  std::map<std::string, Buffer> weights;
  for (const auto& [name, array] : arrays) weights[name] = array.to_device(cpu_device());
  session.bind(std::make_shared<const WeightSet>(std::move(weights)));
  session.forward({HostBuffer::zeros(Shape({2, 4}, f32)).to_device(cpu_device())});
  const std::string name = scratch_file("seed.snap");
  session.save(name);
  std::vector<std::string> parts;
  {
    const Snapshot snapshot = Snapshot::open(name);
    for (const char* section : session_sections) {
      parts.emplace_back(snapshot.find(section) != nullptr ? snapshot.text(section) : "");
    }
  }
  std::pair<std::string, std::string> seeds{read(name), join_sections(parts)};
  fs::remove(name);
  return seeds;
}

constexpr const char* index_seed =
    R"({"metadata": {"total_size": 8}, "weight_map": {"a": "m-00001-of-00002.safetensors",)"
    R"( "b": "m-00002-of-00002.safetensors"}})";

/// Steps that no file among the tests' has.
constexpr const char* tokenizer_steps = R"json({
 "normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"},
  {"type": "Strip", "strip_left": true, "strip_right": false}, {"type": "StripAccents"},
  {"type": "Replace", "pattern": {"Regex": " {2,}|(?i:a+?b)"}, "content": " "},
  {"type": "Precompiled", "precompiled_charsmap": "BAAAAAD8/38="}]},
 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
  {"type": "Split", "pattern": {"Regex": "(?:\\p{L}\\p{M}*)+|\\s+(?!\\S)|[^\\s&&\\P{N}]"},
   "behavior": "MergedWithNext"},
  {"type": "Punctuation"}, {"type": "Digits", "individual_digits": true},
  {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},
 "decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"},
 "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [["?", 0], ["a", -2],
  ["ab", -1.5], ["_", -3], ["<0xC3>", -9], ["<0x9F>", -9]]}})json";

/// Each kind of tokenizer.json that there are cases of, and a vocabulary of each model, with a text.
std::vector<std::string> tokenizer_seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"json_bpe", "json_metaspace_always", "json_metaspace_first",
                           "json_unigram", "wordpiece_cased"}) {
    const std::string parts[] = {read(std::string("tests/text/data/") + name + ".tokenizer.json"),
                                 "Grüße, the world 字 <s> ''s\n\n 12345 aaaa"};
    seeds.push_back(join_sections(parts));
  }
  const std::string steps[] = {tokenizer_steps, "Grüße  aab 12!"};
  seeds.push_back(join_sections(steps));
  const std::string table("\4\0\0\0\xFC\xFF\x7F\0abc\0", 12);
  for (const char model : {0, 1, 2, 3, 4, 5}) {
    const std::string parts[] = {
        std::string{model, 40, 1, 1} + "\1\1?\n\1\3a\n\1\4b\n\1\5ab\n\1\6\xE2\x96\x81",
        "ab a  b\xC3", table};
    seeds.push_back(join_sections(parts));
  }
  return seeds;
}

std::vector<std::string> grammar_seeds() {
  const std::string parts[][2] = {
      {"root ::= answer (\",\" ws answer)*  # all\nanswer ::= \"yes\" | \"no\" | [0-9]{1,3} | "
       "[^\\x00-\\x7F]\n"
       "ws ::= [ \\t]?",
       "yes, 12,no"},
      {R"({"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{1,9}$"},
           "age": {"type": "integer", "minimum": 0, "maximum": 120}, "day": {"format": "date", "type": "string"},
           "more": {"$ref": "#/$defs/list"}}, "required": ["name"], "additionalProperties": false,
           "$defs": {"list": {"type": "array", "items": {"anyOf": [{"const": 1}, {"enum": ["a", null]},
           {"$ref": "#/$defs/list"}]}, "minItems": 1, "maxItems": 3}}})",
       R"({"name": "ada", "age": 36, "more": [1, ["a"]]})"},
      {"{}", R"([{"a": [true, -1.5e3]}, "\u00e9"])"}};
  std::vector<std::string> seeds;
  for (const auto& pair : parts) seeds.push_back(join_sections(pair));
  return seeds;
}

/// Statements, filters and tests that no family's template has.
constexpr const char* chat_template = R"({%- macro said(message, end='</s>') -%}
{{ message['content'] | trim ~ end }}{%- endmacro %}
{%- set ns = namespace(count=0, names=[]) %}{{ bos_token }}
{% for message in messages if message.role != 'tool' %}
  {%- if loop.first and message.role == "system" %}{{ raise_exception('no') if not tools is defined }}
  {%- elif message.role in ['user', 'assistant'] %}{% set ns.count = ns.count + 1 %}
    {%- for word in message.content.split(' ')[:2] | reverse %}[{{ loop.index0 }}:{{ word | upper }}]{% endfor %}
  {%- else %}{% continue %}{% endif %}<{{ message.role }}>{{ said(message) }}{{ '%03d' % ns.count }}
{% endfor %}{{ tools | tojson(indent=2) }}{{ strftime_now('%d %b %Y') }}
{%- if add_generation_prompt %}<assistant>{% endif %})";

std::vector<std::string> chat_template_seeds() {
  std::vector<std::string> seeds;
  const auto add = [&](std::string_view source) {
    const std::string parts[] = {std::string(source), "Grüße, <|im_end|> the world"};
    seeds.push_back(join_sections(parts));
  };
  using enum text::ChatFamily;
  for (const auto family : {chatml, gemma, gemma4, llama2, llama3}) {
    add(text::ChatFormat(family).source());
  }
  add(chat_template);
  return seeds;
}

}  // namespace

std::vector<FuzzTarget> fuzz_targets() {
  const auto [snapshot, session] = session_seeds(small_program(), small_weights());
  const std::string shared_session = session_seeds(parse(shared_constant), shared_weights()).second;
  std::vector<std::string> programs{print(small_program()), shared_constant};
  std::vector<std::string> networks{network_seed({small_program(), small_weights()}),
                                    network_seed({parse(shared_constant), shared_weights()})};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Program program = RandomProgram(seed).make({.callees = static_cast<int>(seed % 3)});
    programs.push_back(print(program));
    networks.push_back(network_seed({program, {}}));
  }
  return {{"gguf", fuzz_gguf, files(".gguf")},
          {"safetensors", fuzz_safetensors, files(".safetensors")},
          {"index", fuzz_index, {index_seed}},
          {"npy", fuzz_npy, files(".npy")},
          {"program", fuzz_program, programs},
          {"network", fuzz_network, networks},
          {"snapshot", fuzz_snapshot, {snapshot}},
          {"session", fuzz_session, {session, shared_session}},
          {"tokenizer", fuzz_tokenizer, tokenizer_seeds()},
          {"grammar", fuzz_grammar, grammar_seeds()},
          {"chat_template", fuzz_chat_template, chat_template_seeds()}};
}

}  // namespace tenon::testing
