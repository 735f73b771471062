#pragma once

#include <tenon/text/tokenizer.hpp>

#include <cstdint>
#include <string>

namespace tenon::text {

/// Decodes tokens as they are generated, without ever cutting a UTF-8 character.
///
/// What comes out is valid UTF-8 at every step: bytes that cannot become a character, or that never
/// became one, leave as U+FFFD. Where all bytes are valid, the parts add up to Tokenizer::decode().
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, DecodeOptions options = {});

  /// The characters that `id` completes; often none. Errors: out_of_range.
  std::string push(std::int32_t id);

  /// What is still held back; the decoder starts anew.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string held_;  ///< the beginning of a character, at most 3 bytes
  bool at_start_ = true;
};

}  // namespace tenon::text
