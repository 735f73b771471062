#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::io {

/// How much each column of a weight matters: sums of squares of what it was multiplied with. Of a stack of experts each
/// has its own.
struct ColumnSums {
  std::int64_t columns = 0;
  std::vector<double> sums{};    ///< [matrices, columns]
  std::vector<double> counts{};  ///< [matrices]: the rows of which the sums are

  /// Sums for `matrices` of so many columns, without a row.
  static ColumnSums zeros(std::int64_t matrices, std::int64_t columns);
  std::int64_t matrices() const noexcept { return static_cast<std::int64_t>(counts.size()); }
  /// Adds a row that one of the matrices was multiplied with.
  void add(std::int64_t matrix, std::span<const float> row) noexcept;
  /// Means of the squares, [matrices, columns]; 1 throughout for a matrix that met no row.
  std::vector<float> means() const;
};

/// What llama.cpp calls an importance matrix: by it weights are quantised so that the error of a model's results is small,
/// and not that of the weights (QuantizeOptions::importance). models::collect_importance() makes one.
struct ImportanceMatrix {
  std::map<std::string, ColumnSums, std::less<>> tensors{};  ///< by name
  std::vector<std::string> datasets{};                       ///< names of the texts that it is of
  std::uint32_t chunk_count = 0;                             ///< pieces of them that the model read
  std::uint32_t chunk_size = 0;                              ///< tokens of a piece

  /// Adds what another run of the same model has collected. Errc::shape_mismatch, naming the tensor, for another model's, and for
  /// experts of which one of the two files, of the former format, does not know how many there are.
  void add(const ImportanceMatrix& other);
};

/// A file of `llama-imatrix` or save_importance(): GGUF, or llama.cpp's former format, whose counts are lost: a piece
/// counts as one row then.
///
/// Errors: those of io::open; bad_magic for another file; truncated, bad_shape, bad_type, bad_reference (sums without counts) for a
/// malformed one; bad_input for sums and counts that are negative or not finite; limit_exceeded for a file above 1 GiB.
ImportanceMatrix load_importance(const std::filesystem::path& path);

/// Writes GGUF as `llama-imatrix` does: for each tensor NAME.in_sum2 and NAME.counts, f32. Errors: those of save_gguf; bad_input for sums
/// that are negative or not finite.
void save_importance(const std::filesystem::path& path, const ImportanceMatrix& matrix);

}  // namespace tenon::io
