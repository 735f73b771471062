// Prints docs/ops.md, the index of ops and builders: from ops.def, the comments in the headers, the
// descriptors, and what the CPU backend takes of the committed op cases. Run in the project's root.
#include "support/op_cases.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::testing {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(Errc::not_found, path, "cannot be opened; run in the project's root");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// A comment's lines up to its first full stop, as a cell of a table.
std::string first_sentence(std::span<const std::string> comment) {
  std::string sentence;
  for (const std::string& line : comment) {
    if (line == "///") break;
    sentence += (sentence.empty() ? "" : " ") + line.substr(std::min<std::size_t>(4, line.size()));
  }
  // Not the points of "x_0 .. x_i", of a number, or of a range.
  std::size_t stop = 0;
  for (; stop < sentence.size(); ++stop) {
    const char before = stop == 0 ? ' ' : sentence[stop - 1];
    const bool ends = stop + 1 == sentence.size() || sentence[stop + 1] == ' ';
    if ((sentence[stop] == '.' || sentence[stop] == ':') && ends && before != '.' &&
        before != ' ') {
      break;
    }
  }
  return std::regex_replace(sentence.substr(0, stop), std::regex("\\|"), "\\|");
}

/// Of the comment above `struct name`.
std::string sentence_of_struct(const std::string& header, const std::string& name) {
  const std::vector<std::string> lines = lines_of(header);
  const std::regex begins("struct " + name + "( |;|\\b).*");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!std::regex_match(lines[i], begins) || lines[i].ends_with(';')) continue;
    std::size_t first = i;
    while (first > 0 && lines[first - 1].starts_with("///")) --first;
    return first_sentence(std::span(lines).subspan(first, i - first));
  }
  return "";
}

/// Functions that are declared without an empty line between them, and what the comment above says.
struct Builders {
  std::vector<std::string> names;
  std::string sentence;
};

/// Those of a header that are no ops.
std::vector<Builders> builders_of(const std::string& header) {
  const std::regex declared("(?:inline )?(?:std::[a-z]+<.*?>|[A-Z]\\w+) (\\w+)\\(.*");
  std::vector<Builders> found;
  std::set<std::string> known;
  std::vector<std::string> comment, names;
  const auto end_group = [&] {
    if (!names.empty()) found.push_back({std::move(names), first_sentence(comment)});
    names.clear();
    comment.clear();
  };
  bool is_public = true;
  for (const std::string& line : lines_of(header)) {
    if (line.find("detail {") != std::string::npos) is_public = false;
    if (line.starts_with("}  // namespace")) is_public = true;
    std::smatch parts;
    if (line.starts_with("///")) {
      if (!names.empty()) end_group();
      comment.push_back(line);
    } else if (line.empty()) {
      end_group();
    } else if (is_public && std::regex_match(line, parts, declared) &&
               find_op(parts[1].str()) == nullptr && !parts[1].str().starts_with("operator") &&
               known.insert(parts[1].str()).second) {
      names.push_back(parts[1].str());
    }
  }
  end_group();
  return found;
}

/// By the op's name, the types that the CPU backend takes in some case. The type is that of the first
/// floating operand, or of the first; operands of one type are given another together.
class TakenTypes {
 public:
  TakenTypes() {
    register_cpu_backend();
    register_reference_backend();
    backends_ = {make_backend("cpu", {.threads = 1}), make_backend("reference")};
    for (const auto& file : committed_op_cases()) {
      for (const OpCase& op_case : read_op_cases(file)) add_types(op_case);
    }
    // No case of it is committed.
    const Shape rows[] = {Shape({1, 256}, f32)};
    add_op(OpInstance(*find_op("quantize")), rows, f32);
  }

  std::string operator[](const std::string& op) const {
    const auto found = types_.find(op);
    if (found == types_.end()) return "";
    std::vector<std::string_view> words;
    for (const DType dtype : found->second) {
      if (!is_block(dtype)) words.push_back(name(dtype));
    }
    if (std::ranges::any_of(found->second, is_block)) words.emplace_back("block types");
    return fmt::format("{}", fmt::join(words, " "));
  }

 private:
  void add_types(const OpCase& op_case) {
    std::vector<Shape> own;
    DType replaced = op_case.output.shape().dtype();
    for (const HostBuffer& input : op_case.inputs) {
      if (own.empty() || (!is_floating(replaced) && is_floating(input.shape().dtype()))) {
        replaced = input.shape().dtype();
      }
      own.push_back(input.shape());
    }
    if (is_block(replaced)) return add_op(op_case.op, own, replaced);
    for (int i = 0; i <= static_cast<int>(DType::f64); ++i) {
      const auto dtype = static_cast<DType>(i);
      std::vector<Shape> shapes = own;
      for (Shape& shape : shapes) {
        if (shape.dtype() == replaced) shape = shape.with_dtype(dtype);
      }
      add_op(op_case.op, shapes, dtype);
    }
  }

  void add_op(const OpInstance& op, std::span<const Shape> shapes, DType dtype) {
    Graph graph;
    const Graph::Recording recording(graph);
    std::vector<Tensor> operands;
    for (const Shape& shape : shapes) operands.push_back(graph.input("", shape));
    Tensor result;
    try {
      result = record(*op.def(), op.attributes(), operands, std::source_location::current());
    } catch (const Error&) {
      return;
    }
    Session session(graph.program({&result, 1}), {.backends = backends_});
    for (const auto& part : session.report(shapes).parts) {
      if (part.backend == "cpu") types_[std::string(op.def()->name)].insert(dtype);
    }
  }

  std::vector<BackendPtr> backends_;
  std::map<std::string, std::set<DType>> types_;
};

void print_ops() {
  std::printf(
      "# Index of ops\n\n"
      "Made by `build/release/tests/conformance/op_index > docs/ops.md`; a test compares. Every op "
      "has a contract in its\nheader and a reference kernel for all its types. CPU: the "
      "types that the CPU backend takes in at least one\ncommitted case, after widening where it "
      "must (of the first floating operand, or of the first). A view needs no kernel.\n\n"
      "| op | header | | operands | CPU | gradient |\n|---|---|---|---|---|---|\n");
  const TakenTypes types;
  const std::string list = read_text("src/ops/ops.def");
  const std::regex entry("TENON_OP\\((\\w+), (\\w+), (\\w+)\\)");
  for (std::sregex_iterator op(list.begin(), list.end(), entry), end; op != end; ++op) {
    const std::string file = (*op)[1], name = (*op)[2], type = (*op)[3];
    if (name == "name") continue;  // the pattern in the file's comment
    const OpDef& def = *find_op(name);
    std::string arity = fmt::format("{}", def.min_inputs);
    if (def.max_inputs > 64) {
      arity += " or more";
    } else if (def.max_inputs != def.min_inputs) {
      arity += fmt::format(" to {}", def.max_inputs);
    }
    std::printf("| `%s` | `%s` | %s | %s | %s | %s |\n", name.c_str(), file.c_str(),
                sentence_of_struct(read_text("include/tenon/ops/" + file + ".hpp"), type).c_str(),
                arity.c_str(), def.view != nullptr ? "view" : types[name].c_str(),
                def.gradient != nullptr ? "yes" : "");
  }
}

void print_builders() {
  std::printf(
      "\n## Builders that compose\n\nFunctions of the same headers that are no ops. Most record "
      "several ops, or views: their "
      "types and gradients are\nthose of the ops.\n\n"
      "| builder | header | |\n|---|---|---|\n");
  std::set<std::string> headers;
  for (const auto& entry : std::filesystem::directory_iterator("include/tenon/ops")) {
    headers.insert(entry.path().stem().string());
  }
  for (const std::string& header : headers) {
    for (const Builders& group : builders_of(read_text("include/tenon/ops/" + header + ".hpp"))) {
      std::printf("| `%s` | `%s` | %s |\n",
                  fmt::format("{}", fmt::join(group.names, "`, `")).c_str(), header.c_str(),
                  group.sentence.c_str());
    }
  }
}

}  // namespace
}  // namespace tenon::testing

int main() try {
  tenon::testing::print_ops();
  tenon::testing::print_builders();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
