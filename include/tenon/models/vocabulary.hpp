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

/// The chat format of a GGUF file's template, or of a further one that it has by this name, such as "tool_use"; none where
/// the file has no such template. Errors: those of text::ChatFormat::from_template.
std::optional<text::ChatFormat> load_chat_format(const io::File& file,
                                                 const text::Tokenizer& tokenizer,
                                                 text::ChatVariables variables = {},
                                                 std::string_view name = {});

/// Variables with the spellings of a tokenizer's tokens for bos_token and eos_token, where these are not set.
text::ChatVariables chat_variables(const text::Tokenizer& tokenizer,
                                   text::ChatVariables variables = {});

}  // namespace tenon::models
