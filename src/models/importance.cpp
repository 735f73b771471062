#include "models/file_place.hpp"
#include "models/page_checks.hpp"

#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/graph.hpp>
#include <tenon/io/load.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/models/importance.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/ops/grouped_linear.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::models {
namespace {

constexpr std::string_view layers_prefix = "blk.";

/// All positions of a piece at once: ids i32 [1, S] -> what the last norm makes of them.
Program states_program(const io::File& file) {
  const DecoderConfig config = DecoderConfig::from(file);
  return placed_in(file, [&] {
    const WeightsView view = file.view();
    const auto decoder = Decoder<>::init(view, config);
    Graph graph;
    const Graph::Recording recording(graph);
    return graph.program(
        std::vector{decoder.states(graph.input("ids", Shape({1, symbol("S")}, i32)))});
  });
}

/// The layers' weights that a program multiplies with, by the names of the products in the unrolled program.
std::map<std::string, std::string, std::less<>> weights_of_products(const Program& program) {
  const Program flat = unroll(program);
  const Function& main = flat.main();
  std::map<ValueId, std::string> names;  // of constants, and what scopes put before names
  std::map<std::string, std::string, std::less<>> weights;
  for (const Instruction& step : main.body) {
    if (step.kind == Instruction::Kind::constant || step.kind == Instruction::Kind::scope) {
      const std::string prefix = step.operands.empty() ? "" : names[step.operands[0]] + ".";
      names[step.result] = prefix + step.text;
    }
    const bool is_product =
        step.kind == Instruction::Kind::op &&
        (step.op.as<Linear>() != nullptr || step.op.as<GroupedLinear>() != nullptr);
    if (!is_product) continue;
    const auto weight = names.find(step.operands[1]);
    if (weight == names.end() || !weight->second.starts_with(layers_prefix)) continue;
    weights[main.values[step.result].name] = weight->second;
  }
  return weights;
}

/// The rows of x, [..., K], one after the other.
template <class Use>
void each_row(const HostBuffer& x, const Use& use) {
  const auto values = x.values<float>();
  const auto width = static_cast<std::size_t>(x.shape()[x.shape().rank() - 1]);
  for (std::size_t at = 0; at < values.size(); at += width)
    use(at / width, values.subspan(at, width));
}

/// Adds the rows that a product reads to the sums of its weight, [N, K] or of experts [G, N, K].
void add_rows(const StepEvent& event, io::ColumnSums& sums) {
  const HostBuffer x = event.inputs[0].to_host().to(f32);
  const Shape& weight = event.inputs[1].shape();
  const bool is_grouped = weight.rank() == 3;
  if (sums.counts.empty()) {
    sums = io::ColumnSums::zeros(is_grouped ? weight[0] : 1, weight[weight.rank() - 1]);
  }
  if (!is_grouped) {
    each_row(x, [&](std::size_t, std::span<const float> row) { sums.add(0, row); });
    return;
  }
  // x is [..., J, K] or [..., 1, K], and the groups [..., J].
  const HostBuffer groups = event.inputs[2].to_host();
  const auto group_of = groups.values<std::int32_t>();
  const std::size_t rows = static_cast<std::size_t>(x.shape().elements() / sums.columns);
  if (rows == 0) return;
  const std::size_t each = group_of.size() / rows;  // groups that read one row
  each_row(x, [&](std::size_t at, std::span<const float> row) {
    for (std::size_t i = at * each; i < (at + 1) * each; ++i) sums.add(group_of[i], row);
  });
}

void check_finite(const io::ImportanceMatrix& matrix) {
  const auto is_finite = [](double x) { return std::isfinite(x); };
  for (const auto& [name, sums] : matrix.tensors) {
    if (std::ranges::all_of(sums.sums, is_finite)) continue;
    throw Error(Errc::bad_input, "collect_importance",
                fmt::format("'{}' is multiplied with infinities or NaNs", name));
  }
}

/// Token ids in pieces, each behind the token that begins a text, where there is one.
std::vector<std::vector<std::int32_t>> pieces_of(const text::Tokenizer& tokenizer,
                                                 std::string_view text,
                                                 const ImportanceOptions& options) {
  const auto tokens = tokenizer.encode(text, {.add_special = false});
  if (tokens.empty())
    throw Error(Errc::bad_argument, "collect_importance", "the text has no tokens");
  std::vector<std::int32_t> beginning;
  if (tokenizer.adds_bos() && tokenizer.bos()) beginning.push_back(*tokenizer.bos());
  const auto room = static_cast<std::size_t>(options.chunk) - beginning.size();
  std::vector<std::vector<std::int32_t>> pieces;
  for (std::size_t at = 0; at < tokens.size(); at += room) {
    if (options.max_chunks > 0 && std::ssize(pieces) == options.max_chunks) break;
    const std::size_t end = std::min(at + room, tokens.size());
    std::vector<std::int32_t>& piece = pieces.emplace_back(beginning);
    piece.insert(piece.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                 tokens.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return pieces;
}

io::ImportanceMatrix collect(const io::File& file, std::string_view text,
                             const ImportanceOptions& options) {
  const std::int64_t context = DecoderConfig::from(file).context_length;
  if (options.chunk < 2 || options.chunk > context) {
    throw Error(Errc::bad_argument, "collect_importance",
                fmt::format("pieces of {} tokens; there can be 2 to {}", options.chunk, context));
  }
  const auto pieces = pieces_of(load_tokenizer(file), text, options);
  const Program program = states_program(file);
  const auto weights = weights_of_products(program);
  const DevicePtr device = options.device ? options.device : cpu_device();
  const CompileOptions on =
      detail::on_device(device, {.backend = options.backend, .cpu_fallback = options.cpu_fallback});
  Session session(program, {.backends = on.backends, .results_on_device = on.results_on_device});
  std::vector<std::string> names;
  for (const io::TensorEntry& tensor : file.tensors()) names.push_back(tensor.name);
  session.bind(std::make_shared<const WeightSet>(io::load_buffers(file, names, device)));
  session.set_interrupt(options.interrupt);

  io::ImportanceMatrix matrix;
  if (!options.dataset.empty()) matrix.datasets.push_back(options.dataset);
  matrix.chunk_size = static_cast<std::uint32_t>(options.chunk);
  session.set_merge(false);
  session.set_post_callback([&](const StepEvent& event) {
    const auto weight = weights.find(event.values.front());
    if (weight != weights.end()) add_rows(event, matrix.tensors[weight->second]);
  });
  for (const std::vector<std::int32_t>& piece : pieces) {
    if (options.progress) options.progress(matrix.chunk_count, std::ssize(pieces));
    const Shape shape({1, std::ssize(piece)}, i32);
    session.forward({HostBuffer::of(shape, std::span(piece)).to_device(device)});
    ++matrix.chunk_count;
    check_finite(matrix);
  }
  return matrix;
}

}  // namespace

io::ImportanceMatrix collect_importance(const io::File& file, std::string_view text,
                                        const ImportanceOptions& options) {
  return with_memory_errors("collect_importance", [&] {
    return with_page_checks(file, [&] { return collect(file, text, options); });
  });
}

}  // namespace tenon::models
