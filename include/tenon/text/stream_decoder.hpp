#pragma once

#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <string>

namespace tenon::text {

/// Decodes tokens as they are generated, in complete UTF-8 characters.
///
/// The output is valid UTF-8 at every step: bytes that cannot be part of a character are replaced
/// by U+FFFD. If all bytes are valid, the parts add up to Tokenizer::decode().
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, DecodeOptions options = {});

  /// The characters that `id` completes; may be none. Errors: out_of_range.
  std::string push(std::int32_t id);

  /// Returns the rest, and resets the decoder.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string held_;  ///< the beginning of a character, at most 3 bytes
  bool at_start_ = true;
};

}  // namespace tenon::text
