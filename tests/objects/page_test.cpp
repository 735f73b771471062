// The example of docs/objects.md, run.
#include "support/shown_code.hpp"

#include <tenon/tenon.hpp>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;

// A class, and an op that changes its objects.
struct Tally {
  std::map<std::int32_t, std::int64_t> counts{};
};

struct CountTokens {
  static constexpr std::string_view name = "count_tokens";
  static constexpr int min_inputs = 2, max_inputs = 2;  // the tally, the tokens
  static constexpr OpTraits traits{.updates_input = 0, .takes_objects = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const {
    if (in[0].dtype() != object_type<Tally>()) fail(Errc::bad_type, name, "counts into a Tally");
    if (in[1].dtype() != i32) fail(Errc::unsupported_dtype, name, "counts i32");
    return in[0];
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    Tally& tally = update_object<Tally>(in[0], out);
    for_each_index(in[1].shape, [&](std::span<const std::int64_t> index) {
      std::int32_t token = 0;
      std::memcpy(&token, in[1].at(index), sizeof token);
      ++tally.counts[token];
    });
  }
};

TEST_CASE("docs/objects.md: its example runs") {
  text::register_objects();
  register_object<Tally>("Tally", {.is_linear = true});
  register_op<CountTokens>();

  const Program program = parse(R"(# tenon 1.0
from __future__ import annotations
from tenon.ir import *
module("tally", opset=1)

def forward(tally0: Tally, text: u8[N]):
    tokenizer: Tokenizer = const("tokenizer")
    ids: i32[8] = tokenize(tokenizer, text, capacity=8)
    tally1 = count_tokens(tally0, ids)
    return tally1
)");

  const std::string json =
      R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel",
                               "unk_token": "?", "vocab": {"?": 0, "one": 1, "two": 2}}})";
  Session session(program);
  session.bind(std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"tokenizer", text::text_buffer(json)}}));

  std::vector<Buffer> inputs(2);
  inputs[0] = object_buffer(Tally{});
  for (const char* line : {"one two two", "two"}) {
    inputs[1] = text::text_buffer(line);
    inputs = session.forward(std::move(inputs));  // moved: changed in place
    inputs.resize(2);
  }
  const std::int64_t twos = object_of<Tally>(inputs[0])->counts[2];  // 3
  CHECK(twos == 3);
}

TEST_CASE("docs/objects.md: its example stands here") {
  testing::check_shown_code("docs/objects.md", "tests/objects/page_test.cpp", 2);
}
