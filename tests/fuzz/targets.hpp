// What a fuzzer feeds: each takes any bytes, and throws std::logic_error where something other than
// a result or a typed error comes of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::testing {

using Bytes = std::span<const std::uint8_t>;

void fuzz_gguf(Bytes bytes);         ///< a GGUF file
void fuzz_safetensors(Bytes bytes);  ///< a safetensors file
void fuzz_index(Bytes bytes);        ///< a safetensors index
void fuzz_npy(Bytes bytes);          ///< an npy file
void fuzz_program(Bytes bytes);      ///< a program's text, and running it
void fuzz_network(Bytes bytes);      ///< a network's JSON and RAW, as sections.hpp joins them, run
void fuzz_snapshot(Bytes bytes);     ///< a snapshot's frame
void fuzz_session(Bytes bytes);      ///< the sections of a session's snapshot, joined, and a run
void fuzz_tokenizer(Bytes bytes);    ///< a tokenizer.json and a text, joined
void fuzz_grammar(Bytes bytes);      ///< a grammar or a JSON schema, and a text, joined
void fuzz_chat_template(Bytes bytes);  ///< a chat template, and a message's text, joined

struct FuzzTarget {
  const char* name;
  void (*run)(Bytes bytes);
  std::vector<std::string> seeds;  ///< good inputs to begin with
};

/// All of them. Reads tests/io/data below the working folder.
std::vector<FuzzTarget> fuzz_targets();

}  // namespace tenon::testing
