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
  std::map<std::string, HostBuffer> weights;  ///< what the program folded itself is in `program`
};

/// Writes a network as two files: JSON with the graph (functions of named nodes, their inputs,
/// attributes and types) and a table of constants, and RAW with the constants' bytes one after the
/// other. docs/network-json.md describes both.
///
/// The pair is saved as one: however a save ends, by an error or a kill, load_network finds the
/// pair as it was before or as it is now (where raw_path is no link). Saves of one pair wait for
/// each other. What a killed save has left goes with the next. The JSON holds the checksums of what
/// is in RAW, so that files of two different saves are refused. The program must be valid (errors
/// as for verify()), and the types that it states of constants those of the arrays
/// (Errc::bad_shape). Errc::duplicate_name for a weight called like a folded constant,
/// Errc::bad_encoding for names that are not UTF-8, Errc::bad_argument when both paths are one;
/// else the errors of writing a file. `check` is called when every constant has been read, before
/// the pair that was there is replaced: what it throws ends the save (File::check_pages, for
/// constants that are pages of a file).
void save_network(const Network& network, const std::filesystem::path& json_path,
                  const std::filesystem::path& raw_path, const std::function<void()>& check = {});

struct NetworkOptions {
  /// Keys that the format does not know are errors (Errc::bad_key); else they are logged once.
  bool strict = false;
  /// Compare the bytes of every constant with its checksum: reads all of RAW once.
  bool verify_constants = true;
  Access access = Access::map;
};

/// Reads a network that a stranger wrote; the constants are pages of RAW. Without `raw_path`, RAW
/// is the file that the JSON names, in its folder or below.
///
/// Nodes may stand in any order; they are brought into one in which each follows what it reads,
/// keeping their own where it is one. Errors name the file and the place in it, such as
/// "net.json:/functions/0/nodes/3". syntax, depth_limit, limit_exceeded (64 MiB of JSON, and the
/// limits of a program's text), unsupported_version, bad_key, bad_type: the JSON. duplicate_name,
/// bad_reference, unknown_op, cycle, bad_attribute, bad_shape and whatever verify() finds: the
/// graph. path_escape, not_found: RAW's name. truncated, trailing_data, bad_offset, bad_alignment,
/// overlap, hole, bad_shape (bytes that do not match the type), unsupported_dtype, corrupt: RAW and
/// its table.
Network load_network(const std::filesystem::path& json_path,
                     const std::filesystem::path& raw_path = {},
                     const NetworkOptions& options = {});

}  // namespace tenon::io
