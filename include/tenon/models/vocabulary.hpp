#pragma once

#include <tenon/io/file.hpp>
#include <tenon/prepared_cache.hpp>
#include <tenon/text/chat.hpp>
#include <tenon/text/tokenizer.hpp>

#include <optional>

namespace tenon::models {

/// The tokenizer of a GGUF file, or of the tokenizer.json beside a safetensors file.
/// Errors: unsupported (another tokenizer model), bad_tokenizer (also byte-level BPE without
/// merges), bad_key, bad_type.
text::Tokenizer load_tokenizer(const io::File& file);

/// The same, with the tables of a GGUF file's tokenizer from `prepared`; where it has none that
/// fit, they are made and added to it.
text::Tokenizer load_tokenizer(const io::File& file, PreparedCache& prepared);

/// The chat format of a GGUF file's template; none where the file has no template. Errors:
/// template_error for a template of an unknown family: use the model with raw text then.
std::optional<text::ChatFormat> load_chat_format(const io::File& file,
                                                 const text::Tokenizer& tokenizer);

}  // namespace tenon::models
