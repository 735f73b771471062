#include "base/utf8.hpp"
#include "tokenizer_impl.hpp"

#include <tenon/text/stream_decoder.hpp>

#include <string_view>
#include <utility>

namespace tenon::text {

StreamDecoder::StreamDecoder(Tokenizer tokenizer, DecodeOptions options)
    : tokenizer_(std::move(tokenizer)), options_(std::move(options)) {}

std::string StreamDecoder::push(std::int32_t id) {
  tokenizer_.impl_->append_decoded(held_, id, options_, at_start_);
  std::string out;
  std::size_t i = 0;
  while (i < held_.size()) {
    const CodePoint c = code_point_at(held_, i);
    if (c.is_cut) break;
    out.append(c.is_valid ? std::string_view(held_).substr(i, c.length) : replacement_character);
    i += c.length;
  }
  held_.erase(0, i);
  return out;
}

std::string StreamDecoder::finish() {
  const bool is_cut = !held_.empty();
  held_.clear();
  at_start_ = true;
  return std::string(is_cut ? replacement_character : std::string_view());
}

}  // namespace tenon::text
