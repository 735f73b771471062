#include "byte_reader.hpp"

#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/importance.hpp>
#include <tenon/io/save.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace tenon::io {
namespace {

constexpr std::string_view sums_suffix = ".in_sum2", counts_suffix = ".counts";
constexpr std::string_view datasets_key = "imatrix.datasets", chunks_key = "imatrix.chunk_count",
                           chunk_size_key = "imatrix.chunk_size";
constexpr std::uint64_t max_file_bytes = std::uint64_t{1} << 30;

void check_numbers(std::span<const double> numbers, const std::string& where,
                   std::string_view name) {
  const auto is_wrong = [](double x) { return !std::isfinite(x) || x < 0; };
  if (const auto wrong = std::ranges::find_if(numbers, is_wrong); wrong != numbers.end()) {
    throw Error(Errc::bad_input, where, fmt::format("'{}' holds {}", name, *wrong));
  }
}

// ggml leaves out outer axes of size 1.
std::int64_t columns_of(const Shape& shape) { return shape[shape.rank() - 1]; }
std::int64_t matrices_of(const Shape& shape) { return shape.rank() == 2 ? shape[0] : 1; }

std::vector<double> numbers_of(const File& file, const TensorEntry& tensor) {
  const int rank = tensor.shape.rank();
  if (tensor.shape.dtype() != DType::f32 || rank < 1 || rank > 2) {
    throw Error(
        Errc::bad_shape, file.path().string(),
        fmt::format("'{}' is {}, not f32 of rank 1 or 2", tensor.name, to_string(tensor.shape)));
  }
  const HostBuffer data = tensor.data();
  const auto values = data.values<float>();
  std::vector<double> numbers(values.begin(), values.end());
  check_numbers(numbers, file.path().string(), tensor.name);
  return numbers;
}

ImportanceMatrix read_gguf_matrix(const std::filesystem::path& path) {
  const File file = open(path, {.access = Access::guarded});
  ImportanceMatrix matrix;
  const Metadata& metadata = file.metadata();
  if (metadata.contains(datasets_key)) {
    for (const std::string_view name : metadata.strings(datasets_key)) {
      matrix.datasets.emplace_back(name);
    }
  }
  matrix.chunk_count = metadata.get_or<std::uint32_t>(chunks_key, 0);
  matrix.chunk_size = metadata.get_or<std::uint32_t>(chunk_size_key, 0);
  for (const TensorEntry& tensor : file.tensors()) {
    std::string_view name = tensor.name;
    if (!name.ends_with(sums_suffix)) continue;
    name.remove_suffix(sums_suffix.size());
    const TensorEntry& counts = file.at(std::string(name).append(counts_suffix));
    ColumnSums& sums = matrix.tensors[std::string(name)];
    sums.sums = numbers_of(file, tensor);
    sums.counts = numbers_of(file, counts);
    sums.columns = columns_of(tensor.shape);
    if (matrices_of(tensor.shape) != sums.matrices() || columns_of(counts.shape) != 1) {
      throw Error(Errc::bad_shape, path.string(),
                  fmt::format("'{}' is {} and its counts {}", tensor.name, to_string(tensor.shape),
                              to_string(counts.shape)));
    }
  }
  file.check_pages();
  if (matrix.tensors.empty()) {
    throw Error(Errc::bad_magic, path.string(),
                "a GGUF file without sums of an importance matrix, which are named *.in_sum2");
  }
  return matrix;
}

std::vector<std::byte> bytes_of(const InputFile& file) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()));
  file.read(0, bytes);
  return bytes;
}

/// llama.cpp's former format: the number of entries, and of each its name, the number of pieces, and for each column the mean
/// square times that number; behind them the number of pieces and the name of the text.
class FormerFormat {
 public:
  FormerFormat(std::span<const std::byte> bytes, const std::filesystem::path& path)
      : name_(path.string()), reader_(bytes, bytes.size(), max_file_bytes, name_) {}

  ImportanceMatrix read() {
    ImportanceMatrix matrix;
    reader_.set_context("number of entries", "");
    const std::int32_t entries = reader_.number<std::int32_t>();
    // Nothing marks the format: what it cannot be is another one.
    if (entries < 1) throw Error(Errc::bad_magic, name_, "no importance matrix");
    for (std::int32_t i = 0; i < entries; ++i) read_entry(matrix);
    if (reader_.remaining() > 0) {
      matrix.chunk_count = static_cast<std::uint32_t>(std::max(count("pieces", 0), 0));
      matrix.datasets.emplace_back(text("dataset"));
    }
    return matrix;
  }

 private:
  std::int32_t count(std::string_view what, std::int32_t least) {
    reader_.set_context(what, "");
    const auto number = reader_.number<std::int32_t>();
    if (number < least) {
      reader_.fail(Errc::bad_magic, fmt::format("{} {}: no importance matrix", number, what));
    }
    return number;
  }

  std::string_view text(std::string_view what) {
    const std::int32_t length = count(what, 0);
    const std::byte* const bytes = reader_.take(static_cast<std::uint64_t>(length));
    return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length)};
  }

  void read_entry(ImportanceMatrix& matrix) {
    const std::string name(text("length of a name"));
    const std::int32_t pieces = count("number of pieces", 0);
    const std::int32_t columns = count("number of columns", 1);
    reader_.check_room(static_cast<std::uint64_t>(columns), sizeof(float));
    ColumnSums& sums = matrix.tensors[name];
    sums = ColumnSums::zeros(1, columns);
    for (double& sum : sums.sums) sum = static_cast<double>(reader_.number<float>());
    sums.counts.front() = std::max(pieces, 1);
    check_numbers(sums.sums, name_, name);
  }

  std::string name_;
  ByteReader reader_;
};

HostBuffer array_of(std::span<const double> numbers, std::int64_t rows) {
  const auto columns = static_cast<std::int64_t>(numbers.size()) / std::max<std::int64_t>(rows, 1);
  HostBuffer array = HostBuffer::uninitialized(Shape({rows, columns}, f32));
  std::ranges::transform(numbers, array.mutable_values<float>().begin(), [](double x) {
    return static_cast<float>(std::min<double>(x, std::numeric_limits<float>::max()));
  });
  return array;
}

}  // namespace

ColumnSums ColumnSums::zeros(std::int64_t matrices, std::int64_t columns) {
  return {.columns = columns,
          .sums = std::vector<double>(static_cast<std::size_t>(matrices * columns)),
          .counts = std::vector<double>(static_cast<std::size_t>(matrices))};
}

void ColumnSums::add(std::int64_t matrix, std::span<const float> row) noexcept {
  double* const to = sums.data() + matrix * columns;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double x = row[i];
    to[i] += x * x;
  }
  ++counts[static_cast<std::size_t>(matrix)];
}

std::vector<float> ColumnSums::means() const {
  std::vector<float> means(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double count = counts[i / static_cast<std::size_t>(columns)];
    means[i] = count > 0 ? static_cast<float>(sums[i] / count) : 1.0f;
  }
  return means;
}

void ImportanceMatrix::add(const ImportanceMatrix& other) {
  for (const auto& [name, more] : other.tensors) {
    const auto [place, is_new] = tensors.try_emplace(name, more);
    if (is_new) continue;
    ColumnSums& sums = place->second;
    if (sums.columns != more.columns || sums.counts.size() != more.counts.size()) {
      throw Error(Errc::shape_mismatch, "ImportanceMatrix::add",
                  fmt::format("'{}' has {} x {} and {} x {} columns", name, sums.matrices(),
                              sums.columns, more.matrices(), more.columns));
    }
    for (std::size_t i = 0; i < sums.sums.size(); ++i) sums.sums[i] += more.sums[i];
    for (std::size_t i = 0; i < sums.counts.size(); ++i) sums.counts[i] += more.counts[i];
  }
  datasets.insert(datasets.end(), other.datasets.begin(), other.datasets.end());
  chunk_count += other.chunk_count;
  if (chunk_size == 0) chunk_size = other.chunk_size;
}

ImportanceMatrix load_importance(const std::filesystem::path& path) {
  return with_memory_errors(path.native(), [&] {
    const auto file = InputFile::open(path, Access::read);
    std::array<std::byte, 4> magic{};
    if (file->size() > max_file_bytes) {
      throw Error(Errc::limit_exceeded, path.string(),
                  fmt::format("{} bytes, more than an importance matrix has", file->size()));
    }
    if (file->size() >= magic.size()) file->read(0, magic);
    if (std::memcmp(magic.data(), "GGUF", magic.size()) == 0) return read_gguf_matrix(path);
    const std::vector<std::byte> bytes = bytes_of(*file);
    return FormerFormat(bytes, path).read();
  });
}

void save_importance(const std::filesystem::path& path, const ImportanceMatrix& matrix) {
  with_memory_errors(path.native(), [&] {
    Metadata metadata;
    metadata.set("general.type", "imatrix");
    const std::vector<std::string_view> datasets(matrix.datasets.begin(), matrix.datasets.end());
    metadata.set_strings(datasets_key, datasets);
    metadata.set(chunks_key, matrix.chunk_count);
    metadata.set(chunk_size_key, matrix.chunk_size);
    std::vector<NamedTensor> tensors;
    for (const auto& [name, sums] : matrix.tensors) {
      check_numbers(sums.sums, path.string(), name);
      tensors.push_back({name + std::string(sums_suffix), array_of(sums.sums, sums.matrices())});
      tensors.push_back(
          {name + std::string(counts_suffix), array_of(sums.counts, sums.matrices())});
    }
    save_gguf(path, metadata, tensors);
  });
}

}  // namespace tenon::io
