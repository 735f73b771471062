#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/io/input_file.hpp>
#include <tenon/program.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace tenon::io {

/// A program with the values of its constants, by name.
struct Network {
  Program program;
  std::map<std::string, HostBuffer> weights;  ///< without folded constants, which are in `program`
};

/// Writes a network as two files: JSON with the graph (functions of named nodes, their inputs,
/// attributes and types) and a table of constants, and RAW with the constants' bytes one after the
/// other. docs/network-json.md describes both.
///
/// The pair is replaced atomically: after an error or a kill, load_network() finds either the old
/// pair or the new one (unless raw_path is a symbolic link). Concurrent saves of one pair wait for
/// each other. Temporary files of a killed save are removed by the next one. The JSON has checksums
/// of the bytes in RAW, so that files of different saves are refused. `check` is called after all
/// constants have been read, and before the old pair is replaced; an exception from it ends the
/// save (File::check_pages, for constants that are pages of a file).
///
/// Errors  those of verify()  the program is invalid
///         bad_shape          a constant's type in the program is not that of its array
///         duplicate_name     a weight has the name of a folded constant
///         bad_encoding       a name is not UTF-8
///         bad_argument       both paths are the same
///         and those of writing a file
void save_network(const Network& network, const std::filesystem::path& json_path,
                  const std::filesystem::path& raw_path, const std::function<void()>& check = {});

struct NetworkOptions {
  /// Refuse keys that the format does not have (Errc::bad_key); otherwise they are logged once.
  bool strict = false;
  /// Verify the checksum of every constant, which reads all of RAW once.
  bool verify_constants = true;
  Access access = Access::map;
};

/// Reads a network from untrusted files; the constants are pages of RAW. Without `raw_path`, RAW is
/// the file that the JSON names, in its folder or below.
///
/// Nodes may be in any order; they are sorted topologically, and keep their order if that is
/// topological. Errors name the file and the location, such as "net.json:/functions/0/nodes/3":
///
///   JSON           syntax, depth_limit, limit_exceeded (64 MiB, and the limits of a program's
///                  text), unsupported_version, bad_key, bad_type
///   graph          duplicate_name, bad_reference, unknown_op, cycle, bad_attribute, bad_shape, and
///                  those of verify()
///   RAW's name     path_escape, not_found
///   RAW, its table truncated, trailing_data, bad_offset, bad_alignment, overlap, hole, bad_shape
///                  (a size in bytes that does not match the type), unsupported_dtype, corrupt
Network load_network(const std::filesystem::path& json_path,
                     const std::filesystem::path& raw_path = {},
                     const NetworkOptions& options = {});

}  // namespace tenon::io
