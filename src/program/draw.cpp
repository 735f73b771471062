#include <tenon/draw.hpp>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace tenon {
namespace {

std::string word(const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::op:
      return std::string(instruction.op.def()->name);
    case Instruction::Kind::constant:
      return "const " + instruction.text;
    case Instruction::Kind::scope:
      return "scope " + instruction.text;
    case Instruction::Kind::pack:
      return "pack";
    case Instruction::Kind::item:
      return fmt::format("item {}", instruction.index);
    case Instruction::Kind::repeat:
      return fmt::format("repeat {} x {}", instruction.function, instruction.count);
    case Instruction::Kind::call:
      return instruction.function;
  }
  return "";
}

std::string label(const Function& function, ValueId value, std::string_view made_by) {
  const Value& v = function.values[value];
  std::string text = v.name;
  if (!made_by.empty()) text += fmt::format(" = {}", made_by);
  if (v.shape) text += " : " + to_string(*v.shape);
  return text;
}

std::string escape(std::string_view text, bool xml) {
  std::string out;
  for (const char c : text) {
    if (xml && c == '<') {
      out += "&lt;";
    } else if (xml && c == '>') {
      out += "&gt;";
    } else if (xml && c == '&') {
      out += "&amp;";
    } else if (xml && static_cast<unsigned char>(c) < ' ') {
      out += '?';  // which XML has no way to write
    } else if (!xml && (c == '"' || c == '\\')) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

/// Calls visit(value, what makes it) for parameters and results of instructions in order.
template <class Visit>
void for_each_value(const Function& function, Visit&& visit) {
  for (ValueId i = 0; i < function.parameter_count; ++i) visit(i, std::string());
  for (const Instruction& instruction : function.body) visit(instruction.result, word(instruction));
}

}  // namespace

std::string to_dot(const Program& program) {
  std::string out =
      fmt::format("digraph \"{}\" {{\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n",
                  escape(program.name, false));
  for (const Function& function : program.functions) {
    out += fmt::format("  subgraph \"cluster_{0}\" {{\n    label=\"{0}\";\n",
                       escape(function.name, false));
    for_each_value(function, [&](ValueId value, const std::string& made_by) {
      out += fmt::format("    \"{}.{}\" [label=\"{}\"];\n", escape(function.name, false),
                         escape(function.values[value].name, false),
                         escape(label(function, value, made_by), false));
    });
    for (const Instruction& instruction : function.body) {
      for (const ValueId operand : instruction.operands) {
        out += fmt::format("    \"{0}.{1}\" -> \"{0}.{2}\";\n", escape(function.name, false),
                           escape(function.values[operand].name, false),
                           escape(function.values[instruction.result].name, false));
      }
    }
    out += "  }\n";
  }
  return out + "}\n";
}

std::string to_svg(const Program& program) {
  constexpr int row_height = 22, column_width = 620, margin = 24, bend = 90;
  std::size_t rows = 0;
  for (const Function& function : program.functions) {
    rows = std::max(rows, function.parameter_count + function.body.size());
  }
  const int width = margin * 2 + static_cast<int>(program.functions.size()) * (column_width + bend);
  const int height = margin * 3 + static_cast<int>(rows + 1) * row_height;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" "
      "font-family=\"monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      width, height);
  int left = margin + bend;
  for (const Function& function : program.functions) {
    out += fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", left, margin,
                       escape(function.name, true));
    std::vector<int> row_of(function.values.size(), 0);
    int row = 1;
    for_each_value(function, [&](ValueId value, const std::string& made_by) {
      row_of[value] = row;
      const int y = margin + row * row_height;
      out += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\" "
          "stroke=\"#999\"/>"
          "<text x=\"{}\" y=\"{}\">{}</text>\n",
          left, y - 15, column_width - margin, row_height - 3,
          value < function.parameter_count ? "#e8f0ff" : "#f7f7f7", left + 6, y,
          escape(label(function, value, made_by), true));
      ++row;
    });
    for (const Instruction& instruction : function.body) {
      for (const ValueId operand : instruction.operands) {
        const int from = margin + row_of[operand] * row_height - 4;
        const int to = margin + row_of[instruction.result] * row_height - 4;
        const int out_by = std::min(bend - 8, 6 + (to - from) / 6);
        out += fmt::format(
            "<path d=\"M{0},{1} C{2},{1} {2},{3} {0},{3}\" fill=\"none\" stroke=\"#4472c4\" "
            "stroke-opacity=\"0.6\"/>\n",
            left, from, left - out_by, to);
      }
    }
    left += column_width + bend;
  }
  return out + "</svg>\n";
}

}  // namespace tenon
