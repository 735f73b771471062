#pragma once

#include <tenon/backend.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/importance.hpp>
#include <tenon/memory.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tenon::models {

struct ImportanceOptions {
  std::int64_t chunk = 512;     ///< tokens of a piece, which the model reads by itself
  std::int64_t max_chunks = 0;  ///< pieces that are read at most; 0: all of the text
  DevicePtr device{};           ///< where the model runs; null: the CPU
  bool cpu_fallback = false;    ///< as CompileOptions::cpu_fallback
  BackendOptions backend{};
  std::string dataset{};  ///< the text's name, for the matrix
  /// Called before each piece.
  std::function<void(std::int64_t done, std::int64_t pieces)> progress{};
  Interrupt interrupt{};
};

/// Lets a language model read a text, and sums up what its layers' weights are multiplied with: every linear and
/// grouped_linear by a tensor of the file, and of several by rows of one tensor, the one by its
/// first rows. Each piece begins with the token that the tokenizer begins texts with. Weights
/// outside of the layers, such as the output's, are left out, as `llama-imatrix` does.
///
/// Errors: those of DecoderConfig::from, load_tokenizer and of running; unsupported for models that Decoder::states() refuses;
/// bad_argument for a text without tokens, and for a chunk below 2 or longer than the model's context; bad_input where a
/// weight meets infinities or NaNs; cancelled, timeout by `interrupt`.
io::ImportanceMatrix collect_importance(const io::File& file, std::string_view text,
                                        const ImportanceOptions& options = {});

}  // namespace tenon::models
