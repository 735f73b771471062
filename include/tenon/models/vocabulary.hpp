#pragma once

#include <tenon/io/file.hpp>
#include <tenon/prepared_cache.hpp>
#include <tenon/text/chat.hpp>
#include <tenon/text/tokenizer.hpp>

#include <optional>

namespace tenon::models {

/// The tokenizer that a GGUF file carries, or the tokenizer.json beside a safetensors file.
/// Errors: unsupported (another tokenizer model), bad_tokenizer (also byte-level BPE without
/// merges), bad_key, bad_type.
text::Tokenizer load_tokenizer(const io::File& file);

/// The same, with the tables of a GGUF file's tokenizer as `prepared` keeps them; where it keeps
/// none that fit, they are made, and given to it.
text::Tokenizer load_tokenizer(const io::File& file, PreparedCache& prepared);

/// The chat format of a GGUF file's own template; none where the file has no template. Errors:
/// template_error when the template is of no known family: use the model with raw text then.
std::optional<text::ChatFormat> load_chat_format(const io::File& file,
                                                 const text::Tokenizer& tokenizer);

}  // namespace tenon::models
