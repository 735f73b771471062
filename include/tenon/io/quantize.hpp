#pragma once

#include <tenon/dtype.hpp>
#include <tenon/interrupt.hpp>
#include <tenon/io/importance.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tenon::io {

/// How far quantize_gguf is.
struct QuantizeProgress {
  std::string_view tensor;  ///< the one being written
  DType from, to;
  std::uint64_t done_bytes;  ///< of the input's tensors
  std::uint64_t total_bytes;
};

struct QuantizeOptions {
  /// Threads that compute; 0: one per processor.
  int threads = 0;
  /// Takes tensors of block types as input: what their rounding lost stays lost.
  bool allow_requantize = false;
  /// Every tensor that is quantised at all gets the mix's main type, where its rows allow.
  bool pure = false;
  /// By what the columns of weights are weighed; null: all alike. Metadata of the output name it. It must live during the call.
  const ImportanceMatrix* importance = nullptr;
  std::string importance_file{};  ///< where it is from, for the metadata
  std::function<void(const QuantizeProgress&)> progress = {};
  Interrupt interrupt = {};
};

struct QuantizeResult {
  std::size_t tensors = 0;
  std::size_t converted = 0;       ///< of them; the others are copied
  std::size_t fallbacks = 0;       ///< whose rows are no whole number of the wanted type's blocks
  std::size_t wide_fallbacks = 0;  ///< of these, in bf16: their numbers are too large for f16
  std::size_t weighed = 0;         ///< of the converted ones, by QuantizeOptions::importance
  std::uint64_t elements = 0;
  std::uint64_t bytes_before = 0, bytes_after = 0;  ///< of tensors
};

/// The names that `type` of quantize_gguf can have: "q4_k_m", "q8_0", "bf16", ...
std::span<const std::string_view> quantize_types();

/// Writes the GGUF file `in` again, to `out`, with its weights in other element types.
///
/// `type` is a mix: a main type, and rules by which some tensors get more bits - those of llama.cpp
/// (llama-quant.cpp), so that sizes and types of tensors are the same, with and without an importance matrix.
/// Tensors of rank 1, norms, routers and other small ones are copied. Metadata are kept, except
/// for `general.file_type` and `general.quantization_version`; a split input becomes one file.
///
/// `out` appears whole or not at all, as with save_gguf.
///
/// Errors  of io::open and save_gguf
///         bad_argument       no such type, or `out` is a file of the input or `importance_file`
///         unsupported_dtype  a tensor gets iq1_s, iq1_m, iq2_xxs or iq2_xs, and there is no importance for it
///         shape_mismatch     importance of another number of columns than the tensor's
///         unsupported        the input is no GGUF file, or holds block types without
///                            allow_requantize
///         bad_input          weights to convert hold an infinity or a NaN, or a number that is too
///                            large for the type or its scales (f16: from 65520)
///         cancelled, timeout as the interrupt says
QuantizeResult quantize_gguf(const std::filesystem::path& in, const std::filesystem::path& out,
                             std::string_view type, const QuantizeOptions& options = {});

}  // namespace tenon::io
