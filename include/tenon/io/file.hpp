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

/// An array of a file: its type, and where its bytes lie. The range has been checked against the
/// file's size when the file was opened; nothing has been read.
struct TensorEntry {
  std::string name;
  /// Row-major, outermost first: GGUF lists the same sizes innermost first.
  Shape shape;
  std::shared_ptr<const InputFile> file;
  std::uint64_t offset_bytes = 0;  ///< from the beginning of `file`
  std::uint64_t size_bytes = 0;

  /// The array. Mapped pages where the file is mapped and the elements are aligned, which costs
  /// nothing; an owned copy otherwise. Errc::io_error when the file has changed its length.
  HostBuffer data() const;

  /// Copies the bytes to memory of the caller, `size_bytes` long (Errc::bad_argument otherwise).
  /// Errc::io_error when the file has changed its length.
  void read(std::span<std::byte> to) const;
};

/// An opened model file, or a set of files that make one model. A handle: copies share the state,
/// which is immutable; every member may be called from any thread. The entries, the metadata and
/// the arrays that data() returned stay valid without it. One that was moved from:
/// Errc::call_order.
class File {
 public:
  /// What the user named: the file, the index, the first shard, or the file found in a folder.
  const std::filesystem::path& path() const;
  Format format() const;

  /// In the order of their bytes; shard after shard.
  std::span<const TensorEntry> tensors() const;
  const TensorEntry* find(std::string_view name) const;
  /// Errc::bad_reference, naming similar names, when the file has no such tensor.
  const TensorEntry& at(std::string_view name) const;

  /// GGUF's key and value pairs (of the first shard), or the strings of safetensors'
  /// `__metadata__`.
  const Metadata& metadata() const;

  /// What a model struct declares its tensors from: types only, nothing is read. The tensors stay
  /// valid as long as this file or the view lives.
  WeightsView view() const;

  /// A file of this name in the same folder ("config.json"), if there is one. `name` is one path
  /// component (Errc::path_escape otherwise).
  std::optional<std::filesystem::path> sibling(std::string_view name) const;

  /// Errc::io_error when pages of one of the files were missing when they were read, so that zeros
  /// were taken for weights or words (Access::guarded). One load per file.
  void check_pages() const;

  /// The files that hold the tensors: one, or every shard in order.
  std::span<const std::shared_ptr<const InputFile>> shards() const;

  struct State;
  explicit File(std::shared_ptr<const State> state) noexcept;

 private:
  tenon::detail::Held<const State, "File"> state_;
};

/// Opens a model for reading: headers are parsed and checked whole, tensor bytes stay where they
/// are.
///
/// `path` may be
///  - a GGUF file, version 2 or 3, little-endian; any shard `-00001-of-0000N.gguf` of a split one
///    opens all of them
///  - a safetensors file, or a `*.safetensors.index.json` beside the shards it names
///  - a model folder that holds exactly one of these
///
/// The beginning of a file decides its format; the extension only where that says nothing.
///
/// Errors name the file and the byte offset. not_found, not_regular_file, io_error: the file
/// itself. bad_magic, unsupported_version, truncated, syntax, limit_exceeded, depth_limit: its
/// frame. bad_key, bad_type, bad_encoding, duplicate_name, bad_alignment: keys and values.
/// bad_shape, shape_overflow, unsupported_dtype, bad_offset, overlap, hole, trailing_data: tensors.
/// missing_shard, bad_split, path_escape, bad_reference: split models.
File open(const std::filesystem::path& path, const OpenOptions& options = {});

}  // namespace tenon::io
