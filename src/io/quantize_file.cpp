#include "gguf_writer.hpp"
#include "quantize_rules.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/quantize.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/quant.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::io {
namespace {

using namespace quantize_rules;

constexpr std::string_view caller = "quantize";

[[noreturn]] void refuse(Errc code, std::string sentence) {
  throw Error(code, std::string(caller), std::move(sentence));
}

const MixFacts& mix_named(std::string_view type) {
  std::string lower(type);  // llama.cpp has Q8_0
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (const MixFacts* mix = find_mix(lower)) return *mix;
  refuse(Errc::bad_argument,
         fmt::format("no type '{}'; there are {}", type, fmt::join(quantize_types(), ", ")));
}

void require_other_file(const File& file, const QuantizeOptions& options,
                        const std::filesystem::path& out) {
  const auto is_out = [&](const std::filesystem::path& path) {
    std::error_code missing;
    return std::filesystem::equivalent(path, out, missing);
  };
  for (const auto& shard : file.shards()) {
    if (is_out(shard->path())) {
      refuse(Errc::bad_argument, fmt::format("{} is a file of the input", out.string()));
    }
  }
  if (options.importance != nullptr && is_out(options.importance_file)) {
    refuse(Errc::bad_argument, fmt::format("{} is the importance matrix", out.string()));
  }
}

/// Whether f16 holds the numbers of a tensor with an infinity or a NaN for none of them.
bool fits_f16(const TensorEntry& tensor) {
  constexpr float limit = 65520;  // the first number that rounds to an infinity
  const DType from = tensor.shape.dtype();
  const std::int64_t columns = tensor.shape[tensor.shape.rank() - 1];
  const HostBuffer data = tensor.data();
  std::vector<float> row(static_cast<std::size_t>(columns));
  const std::int64_t row_bytes = columns / block_size(from) * block_bytes(from);
  for (std::uint64_t at = 0; at < tensor.size_bytes; at += static_cast<std::uint64_t>(row_bytes)) {
    dequantize(from, data.bytes() + at, row.data(), columns);
    if (!std::ranges::all_of(row, [](float x) { return std::fabs(x) < limit; })) return false;
  }
  return true;
}

/// The rows of a tensor in another type.
class Conversion {
 public:
  /// `importance`: of each column of each matrix; empty: none.
  Conversion(const TensorEntry& tensor, DType to, std::span<const float> importance,
             const Interrupt& interrupt)
      : name_(tensor.name),
        data_(tensor.data()),
        from_(tensor.shape.dtype()),
        to_(to),
        columns_(tensor.shape[tensor.shape.rank() - 1]),
        rows_(columns_ == 0 ? 0 : tensor.shape.elements() / columns_),
        importance_(importance),
        out_(static_cast<std::size_t>(tensor.shape.with_dtype(to).bytes())),
        interrupt_(interrupt) {}

  const std::vector<std::byte>& run(int threads) {
    constexpr std::int64_t elements_at_once = 1 << 15;
    rows_at_once_ =
        std::max<std::int64_t>(1, elements_at_once / std::max<std::int64_t>(columns_, 1));
    const std::int64_t pieces = (rows_ + rows_at_once_ - 1) / rows_at_once_;
    const auto count = static_cast<std::size_t>(
        std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(pieces, 1)));
    std::vector<std::vector<float>> buffers(
        count, std::vector<float>(static_cast<std::size_t>(rows_at_once_ * columns_)));
    {
      std::vector<std::jthread> helpers;
      helpers.reserve(count);
      for (std::size_t i = 1; i < count; ++i) {
        try {
          helpers.emplace_back([this, &buffers, i] { work(buffers[i]); });
        } catch (const std::system_error&) {
          break;  // fewer of them do the same work
        }
      }
      work(buffers[0]);
    }
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    interrupt_.check(caller);
    if (has_special_) {
      refuse(Errc::bad_input, fmt::format("tensor '{}' holds an infinity or a NaN", name_));
    }
    if (is_too_large_) {
      refuse(Errc::bad_input,
             fmt::format("tensor '{}' has numbers that are too large for {}", name_, name(to_)));
    }
    return out_;
  }

 private:
  void work(std::vector<float>& buffer) noexcept {
    try {
      convert(buffer);
    } catch (...) {
      has_stopped_ = true;
      const std::scoped_lock lock(failure_mutex_);
      failure_ = std::current_exception();
    }
  }
  void convert(std::vector<float>& buffer) {
    const std::int64_t row_in = columns_ / block_size(from_) * block_bytes(from_);
    const std::int64_t row_out = columns_ / block_size(to_) * block_bytes(to_);
    const auto has_special = [&](std::int64_t count) {
      return std::any_of(buffer.begin(), buffer.begin() + count,
                         [](float x) { return !std::isfinite(x); });
    };
    while (!has_special_ && !is_too_large_ && !has_stopped_ && !interrupt_.is_due()) {
      const std::int64_t first = next_.fetch_add(rows_at_once_);
      if (first >= rows_) return;
      const std::int64_t count = std::min(rows_at_once_, rows_ - first) * columns_;
      dequantize(from_, data_.bytes() + first * row_in, buffer.data(), count);
      if (has_special(count)) {
        has_special_ = true;
        return;
      }
      std::byte* const made = out_.data() + first * row_out;
      if (importance_.empty()) {
        quantize(to_, buffer.data(), made, count);
      } else {
        quantize_rows(buffer.data(), first, count / columns_);
      }
      dequantize(to_, made, buffer.data(), count);
      if (has_special(count)) is_too_large_ = true;
    }
  }
  /// Rows from `first` on, each by the importance of its matrix.
  void quantize_rows(const float* in, std::int64_t first, std::int64_t count) {
    const std::int64_t row_out = columns_ / block_size(to_) * block_bytes(to_);
    const std::int64_t matrices = std::ssize(importance_) / columns_;
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::int64_t matrix = row / (rows_ / matrices);
      quantize(to_, in, out_.data() + row * row_out, columns_,
               importance_.subspan(static_cast<std::size_t>(matrix * columns_),
                                   static_cast<std::size_t>(columns_)));
      in += columns_;
    }
  }

  std::string_view name_;
  HostBuffer data_;
  DType from_, to_;
  std::int64_t columns_, rows_;
  std::int64_t rows_at_once_ = 1;
  std::span<const float> importance_;
  std::vector<std::byte> out_;
  const Interrupt& interrupt_;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<bool> has_special_ = false;
  std::atomic<bool> is_too_large_ = false;  // a number, for the type's scales
  std::atomic<bool> has_stopped_ = false;   // because of `failure_`
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

/// The importance of each column of a tensor that is converted to `to`; empty where there is none.
std::vector<float> importance_of(const TensorEntry& tensor, DType to,
                                 const QuantizeOptions& options) {
  if (tensor.shape.dtype() == to || !is_block(to)) return {};
  const ImportanceMatrix* const matrix = options.importance;
  const auto found =
      matrix == nullptr ? decltype(matrix->tensors.end())() : matrix->tensors.find(tensor.name);
  if (matrix == nullptr || found == matrix->tensors.end()) {
    if (!is_quantizable(to)) {
      refuse(Errc::unsupported_dtype,
             fmt::format("{} takes an importance matrix, and {}", name(to),
                         matrix == nullptr
                             ? std::string("there is none (--imatrix, QuantizeOptions::importance)")
                             : fmt::format("it has nothing of tensor '{}'", tensor.name)));
    }
    return {};
  }
  const int rank = tensor.shape.rank();
  const std::int64_t columns = tensor.shape[rank - 1];
  const std::int64_t matrices =
      rank < 3
          ? 1
          : tensor.shape.elements() / std::max<std::int64_t>(columns * tensor.shape[rank - 2], 1);
  std::vector<float> means = found->second.means();
  if (std::ssize(means) != matrices * columns) {
    refuse(Errc::shape_mismatch,
           fmt::format("the importance matrix has {} columns of tensor '{}', which is {}",
                       means.size(), tensor.name, to_string(tensor.shape)));
  }
  const auto is_wrong = [](float mean) { return !std::isfinite(mean) || mean < 0; };
  if (const auto wrong = std::ranges::find_if(means, is_wrong); wrong != means.end()) {
    const std::int64_t at = wrong - means.begin();
    refuse(Errc::bad_input, fmt::format("the importance of column {} of tensor '{}' is {}",
                                        at % columns, tensor.name, *wrong));
  }
  return means;
}

Metadata metadata_for(const Metadata& from, const MixFacts& mix, const QuantizeOptions& options) {
  std::vector<Metadata::Entry> entries;
  for (const Metadata::Entry& entry : from.entries()) {
    const bool is_kept =
        !entry.key.starts_with("split.") && !entry.key.starts_with("quantize.imatrix.");
    if (is_kept) entries.push_back(entry);
  }
  // The copy keeps the input's memory.
  Metadata result(std::move(entries), std::make_shared<const Metadata>(from), std::string(caller));
  result.set("general.quantization_version", std::uint32_t{2});
  result.set("general.file_type", mix.file_type);
  if (const ImportanceMatrix* const matrix = options.importance) {  // as llama.cpp names it
    result.set("quantize.imatrix.file", options.importance_file);
    if (!matrix->datasets.empty()) {
      result.set("quantize.imatrix.dataset", matrix->datasets.front());
    }
    result.set("quantize.imatrix.entries_count",
               static_cast<std::uint32_t>(matrix->tensors.size()));
    result.set("quantize.imatrix.chunks_count", matrix->chunk_count);
  }
  return result;
}

void require_convertible(const TensorEntry& tensor, DType to, const QuantizeOptions& options) {
  const DType from = tensor.shape.dtype();
  if (from == to || !is_block(from) || options.allow_requantize) return;
  refuse(Errc::unsupported,
         fmt::format("tensor '{}' is {} already: rounding it again, to {}, has to be asked for "
                     "(--requantize, allow_requantize)",
                     tensor.name, name(from), name(to)));
}

QuantizeResult run(const std::filesystem::path& in, const std::filesystem::path& out,
                   const MixFacts& mix, const QuantizeOptions& options) {
  if (options.threads < 0) {
    refuse(Errc::bad_argument, fmt::format("{} threads", options.threads));
  }
  const File file = open(in);
  if (file.format() != Format::gguf) {
    refuse(Errc::unsupported, fmt::format("{} is {}; only GGUF files are quantised",
                                          file.path().string(), name(file.format())));
  }
  require_other_file(file, options, out);
  const auto tensors = file.tensors();
  auto choices =
      choose_types(tensors, file.metadata(), mix,
                   {.pure = options.pure, .has_importance = options.importance != nullptr});

  QuantizeResult result;
  std::vector<TensorPlan> plans;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& tensor = tensors[i];
    if (choices[i].fallback && choices[i].type == f16 && tensor.shape.dtype() != f16) {
      options.interrupt.check(caller);
      if (!fits_f16(tensor)) {
        choices[i].type = bf16;
        ++result.wide_fallbacks;
      }
    }
    require_convertible(tensor, choices[i].type, options);
    result.weighed += importance_of(tensor, choices[i].type, options).empty() ? 0u : 1u;
    plans.push_back({tensor.name, tensor.shape.with_dtype(choices[i].type)});
    ++result.tensors;
    result.converted += choices[i].type != tensor.shape.dtype() ? 1u : 0u;
    result.fallbacks += choices[i].fallback ? 1u : 0u;
    result.elements += static_cast<std::uint64_t>(tensor.shape.elements());
    result.bytes_before += tensor.size_bytes;
    result.bytes_after += static_cast<std::uint64_t>(plans.back().shape.bytes());
  }

  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  std::uint64_t done = 0;
  write_gguf(out, metadata_for(file.metadata(), mix, options), plans, caller,
             [&](std::size_t i, AtomicFile& to) {
               const TensorEntry& tensor = tensors[i];
               const DType from = tensor.shape.dtype(), type = choices[i].type;
               options.interrupt.check(caller);
               if (options.progress) {
                 options.progress({tensor.name, from, type, done, result.bytes_before});
               }
               if (type == from) {
                 const HostBuffer data = tensor.data();
                 to.write({data.bytes(), static_cast<std::size_t>(tensor.size_bytes)});
               } else {
                 const std::vector<float> importance = importance_of(tensor, type, options);
                 to.write(Conversion(tensor, type, importance, options.interrupt).run(threads));
               }
               file.check_pages();
               done += tensor.size_bytes;
             });
  return result;
}

}  // namespace

std::span<const std::string_view> quantize_types() { return mix_names(); }

QuantizeResult quantize_gguf(const std::filesystem::path& in, const std::filesystem::path& out,
                             std::string_view type, const QuantizeOptions& options) {
  const MixFacts& mix = mix_named(type);
  QuantizeResult result;
  with_memory_errors(out.native(), [&] { result = run(in, out, mix, options); });
  return result;
}

}  // namespace tenon::io
