#pragma once

#include <tenon/held.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/input_file.hpp>
#include <tenon/io/metadata.hpp>
#include <tenon/io/options.hpp>
#include <tenon/shape.hpp>
#include <tenon/weights_view.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tenon::io {

enum class Format : std::uint8_t { gguf, safetensors, safetensors_sharded };

std::string_view name(Format format) noexcept;  ///< "gguf", "safetensors", "sharded safetensors"

/// A tensor of a file: its shape, and the location of its bytes, which is checked against the
/// file's size when the file is opened. The bytes are not read before data() or read().
struct TensorEntry {
  std::string name;
  /// Row-major, outermost first: GGUF lists the same sizes innermost first.
  Shape shape;
  std::shared_ptr<const InputFile> file;
  std::uint64_t offset_bytes = 0;  ///< from the beginning of `file`
  std::uint64_t size_bytes = 0;

  /// The tensor as an array: mapped pages, without a copy, where the file is mapped and the
  /// elements are aligned; an owned copy otherwise. Errc::io_error when the file's length has
  /// changed.
  HostBuffer data() const;

  /// Copies the bytes to `to`. Errc::bad_argument unless that has size_bytes; Errc::io_error when
  /// the file's length has changed.
  void read(std::span<std::byte> to) const;
};

/// An opened model file, or the files of a split model. A handle: copies share the state, which is
/// immutable. Thread-safe. Copies of its entries and of its metadata, and arrays that data()
/// returned, stay valid without it. Use of a moved-from one throws Errc::call_order.
class File {
 public:
  /// The path of the file, the index or the first shard; for a folder, of the file found in it.
  const std::filesystem::path& path() const;
  Format format() const;

  /// In the order of their bytes, shard after shard. Not of a temporary file, whose entries would go
  /// with it: `for (const auto& t : io::open(path).tensors())` does not compile.
  std::span<const TensorEntry> tensors() const&;
  std::span<const TensorEntry> tensors() const&& = delete;
  const TensorEntry* find(std::string_view name) const;
  /// The tensor of a name. Errc::bad_reference, suggesting similar names, when there is none.
  const TensorEntry& at(std::string_view name) const;

  /// GGUF's key and value pairs (of the first shard), or the strings of safetensors'
  /// `__metadata__`.
  const Metadata& metadata() const;

  /// The names and shapes from which a model struct declares its tensors; reads nothing. The
  /// tensors stay valid as long as this file or the view exists.
  WeightsView view() const;

  /// Path of another file in the same folder, such as "config.json", if it exists. `name` must be
  /// one path component (Errc::path_escape).
  std::optional<std::filesystem::path> sibling(std::string_view name) const;

  /// Throws Errc::io_error when pages of one of the files were missing when they were read, so that
  /// zeros were read instead (Access::guarded). Costs one load per file.
  void check_pages() const;

  /// The files that hold the tensors: one, or every shard in order.
  std::span<const std::shared_ptr<const InputFile>> shards() const;

  struct State;
  explicit File(std::shared_ptr<const State> state) noexcept;

 private:
  tenon::detail::Held<const State, "File"> state_;
};

/// Opens a model for reading: parses and checks all headers, without reading tensor bytes.
///
/// `path` may be
///  - a GGUF file, version 2 or 3, little-endian; any shard `-00001-of-0000N.gguf` of a split one
///    opens all of them
///  - a safetensors file, or a `*.safetensors.index.json` beside the shards it names
///  - a model folder that holds exactly one of these
///
/// The first bytes of a file determine its format; the extension only where they do not.
///
/// Errors name the file and the byte offset:
///
///   file             not_found, not_regular_file, io_error
///   structure        bad_magic, unsupported_version, truncated, syntax, limit_exceeded,
///                    depth_limit
///   keys and values  bad_key, bad_type, bad_encoding, duplicate_name, bad_alignment
///   tensors          bad_shape, shape_overflow, unsupported_dtype, bad_offset, overlap, hole,
///                    trailing_data
///   split models     missing_shard, bad_split, path_escape, bad_reference
File open(const std::filesystem::path& path, const OpenOptions& options = {});

}  // namespace tenon::io
