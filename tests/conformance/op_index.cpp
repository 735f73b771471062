// Prints docs/ops.md, the index of ops: from ops.def, the contracts in the headers, the descriptors,
// and what the CPU backend takes of the committed op cases. Run in the project's root.
#include "support/op_cases.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/session.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
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

/// The comment above `struct name`, up to its first full stop.
std::string first_sentence(const std::string& header, const std::string& name) {
  std::vector<std::string> lines;
  std::istringstream text(header);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  const std::regex begins("struct " + name + "( |;|\\b).*");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!std::regex_match(lines[i], begins) || lines[i].ends_with(';')) continue;
    std::size_t first = i;
    while (first > 0 && lines[first - 1].starts_with("///")) --first;
    std::string sentence;
    for (std::size_t k = first; k < i && lines[k] != "///"; ++k) {
      sentence +=
          (k == first ? "" : " ") + lines[k].substr(std::min<std::size_t>(4, lines[k].size()));
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
    sentence = sentence.substr(0, stop);
    return std::regex_replace(sentence, std::regex("\\|"), "\\|");
  }
  return "";
}

struct Types {
  std::set<DType> cpu;        ///< that the CPU backend takes, in some case
  std::set<DType> reference;  ///< that only the reference takes
};

/// By the op's name. The type is that of the first floating operand, or of the first; operands of
/// one type are given another together.
std::map<std::string, Types> types_by_op() {
  register_cpu_backend();
  register_reference_backend();
  const std::vector<BackendPtr> backends{make_backend("cpu", {.threads = 1}),
                                         make_backend("reference")};
  std::map<std::string, Types> types;
  for (const auto& file : committed_op_cases()) {
    for (const OpCase& op_case : read_op_cases(file)) {
      const OpDef& def = *op_case.op.def();
      std::vector<Shape> own;
      DType replaced = op_case.output.shape().dtype();
      for (const HostBuffer& input : op_case.inputs) {
        if (own.empty() || (!is_floating(replaced) && is_floating(input.shape().dtype()))) {
          replaced = input.shape().dtype();
        }
        own.push_back(input.shape());
      }
      if (is_block(replaced)) continue;
      for (int i = 0; i <= static_cast<int>(DType::f64); ++i) {
        const auto dtype = static_cast<DType>(i);
        std::vector<Shape> shapes = own;
        for (Shape& shape : shapes) {
          if (shape.dtype() == replaced) shape = shape.with_dtype(dtype);
        }
        Graph graph;
        const Graph::Recording recording(graph);
        std::vector<Tensor> operands;
        for (const Shape& shape : shapes) operands.push_back(graph.input("", shape));
        Tensor result;
        try {
          result = record(def, op_case.op.attributes(), operands, std::source_location::current());
        } catch (const Error&) {
          continue;
        }
        Session session(graph.program({&result, 1}), {.backends = backends});
        for (const auto& part : session.report(shapes).parts) {
          Types& found = types[std::string(def.name)];
          (part.backend == "cpu" ? found.cpu : found.reference).insert(dtype);
        }
      }
    }
  }
  for (auto& [name, found] : types) {
    for (const DType dtype : found.cpu) found.reference.erase(dtype);
  }
  return types;
}

std::string list_of(const std::set<DType>& types) {
  std::vector<std::string_view> words;
  for (const DType dtype : types) words.push_back(name(dtype));
  return fmt::format("{}", fmt::join(words, " "));
}

void print_index() {
  std::printf(
      "# Index of ops\n\n"
      "Made by `build/release/tests/conformance/op_index > docs/ops.md`; a test compares. Every op "
      "has a contract in its\nheader and a reference kernel for all its types. CPU: the plain "
      "types "
      "that the CPU backend takes in at least one\ncommitted case, after widening where it must; "
      "reference: those that only the reference backend takes (of the first\nfloating operand, or "
      "of "
      "the first). A view needs no kernel. Builders that combine these ops stand in the same\n"
      "headers.\n\n"
      "| op | header | | operands | CPU | reference | gradient |\n|---|---|---|---|---|---|---|\n");
  const auto types = types_by_op();
  const std::string list = read_text("src/ops/ops.def");
  const std::regex entry("TENON_OP\\((\\w+), (\\w+), (\\w+)\\)");
  for (std::sregex_iterator op(list.begin(), list.end(), entry), end; op != end; ++op) {
    const std::string file = (*op)[1], name = (*op)[2], type = (*op)[3];
    if (name == "name") continue;  // the pattern in the file's comment
    const OpDef& def = *find_op(name);
    const auto known = types.find(name);
    const Types found = known == types.end() ? Types{} : known->second;
    std::string arity = fmt::format("{}", def.min_inputs);
    if (def.max_inputs > 64) {
      arity += " or more";
    } else if (def.max_inputs != def.min_inputs) {
      arity += fmt::format(" to {}", def.max_inputs);
    }
    std::printf("| `%s` | `%s` | %s | %s | %s | %s | %s |\n", name.c_str(), file.c_str(),
                first_sentence(read_text("include/tenon/ops/" + file + ".hpp"), type).c_str(),
                arity.c_str(), def.view != nullptr ? "view" : list_of(found.cpu).c_str(),
                def.view != nullptr ? "" : list_of(found.reference).c_str(),
                def.gradient != nullptr ? "yes" : "");
  }
}

}  // namespace
}  // namespace tenon::testing

int main() try {
  tenon::testing::print_index();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
