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
#include <tenon/ops/slice.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::models {
namespace {

constexpr std::string_view layers_prefix = "blk.";

/// All positions of a piece at once: ids i32 [1, length] -> what the last norm makes of them.
Program states_program(const io::File& file, std::int64_t length) {
  const DecoderConfig config = DecoderConfig::from(file);
  return placed_in(file, [&] {
    const WeightsView view = file.view();
    const auto decoder = Decoder<>::init(view, config);
    Graph graph;
    const Graph::Recording recording(graph);
    return graph.program(std::vector{decoder.states(graph.input("ids", Shape({1, length}, i32)))});
  });
}

using NamesOfWeights = std::map<std::string, std::string, std::less<>>;

/// The layers' weights that a program multiplies with, by the names of the products in the unrolled
/// program. Of linear layers whose weights are rows of one, and which read the same, the one with
/// the first rows stands for all.
NamesOfWeights weights_of_products(const Program& program) {
  const Program flat = unroll(program);
  const Function& main = flat.main();
  std::map<ValueId, std::string> names;       // of constants, and what scopes put before names
  std::map<ValueId, std::string> first_rows;  // of constants that these are a part of
  NamesOfWeights weights;
  for (const Instruction& step : main.body) {
    if (step.kind == Instruction::Kind::constant || step.kind == Instruction::Kind::scope) {
      const std::string prefix = step.operands.empty() ? "" : names[step.operands[0]] + ".";
      names[step.result] = prefix + step.text;
    }
    if (step.kind != Instruction::Kind::op) continue;
    if (const auto* const slice = step.op.as<Slice>();
        slice != nullptr && slice->axis == 0 && slice->begin == 0 && slice->step == 1) {
      const auto whole = names.find(step.operands[0]);
      if (whole != names.end()) first_rows[step.result] = whole->second;
    }
    const bool is_linear = step.op.as<Linear>() != nullptr;
    if (!is_linear && step.op.as<GroupedLinear>() == nullptr) continue;
    const ValueId weight = step.operands[1];
    const auto& found = is_linear && first_rows.contains(weight) ? first_rows : names;
    const auto name = found.find(weight);
    if (name == found.end() || !name->second.starts_with(layers_prefix)) continue;
    weights[main.values[step.result].name] = name->second;
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

/// Reads pieces and sums up what weights are multiplied with.
class Collector {
 public:
  Collector(const io::File& file, const ImportanceOptions& options)
      : file_(file), options_(options), device_(options.device ? options.device : cpu_device()) {
    std::vector<std::string> names;
    for (const io::TensorEntry& tensor : file.tensors()) names.push_back(tensor.name);
    weights_ = std::make_shared<const WeightSet>(io::load_buffers(file, names, device_));
    matrix_.chunk_size = static_cast<std::uint32_t>(options.chunk);
    if (!options.dataset.empty()) matrix_.datasets.push_back(options.dataset);
  }

  void read(std::span<const std::int32_t> piece) {
    const Shape shape({1, std::ssize(piece)}, i32);
    if (!session_ || shape[1] != length_) prepare(shape[1]);
    session_->forward({HostBuffer::of(shape, piece).to_device(device_)});
    ++matrix_.chunk_count;
    check_finite(matrix_);
  }
  const io::ImportanceMatrix& matrix() const noexcept { return matrix_; }

 private:
  /// Programs have the length: masks, biases by distance and scans of some models are made for a
  /// known one.
  void prepare(std::int64_t length) {
    session_.reset();  // its activations go first
    const Program program = states_program(file_, length);
    weight_of_ = weights_of_products(program);
    const CompileOptions on = detail::on_device(
        device_, {.backend = options_.backend, .cpu_fallback = options_.cpu_fallback});
    session_.emplace(program, SessionOptions{.backends = on.backends,
                                             .results_on_device = on.results_on_device});
    session_->bind(weights_);
    session_->set_interrupt(options_.interrupt);
    session_->set_merge(false);
    session_->set_post_callback([this](const StepEvent& event) {
      const auto weight = weight_of_.find(event.values.front());
      if (weight != weight_of_.end()) add_rows(event, matrix_.tensors[weight->second]);
    });
    length_ = length;
  }

  const io::File& file_;
  const ImportanceOptions& options_;
  const DevicePtr device_;
  std::shared_ptr<const WeightSet> weights_;
  io::ImportanceMatrix matrix_;
  NamesOfWeights weight_of_;  ///< by products of the session's program
  std::int64_t length_ = 0;
  std::optional<Session> session_;
};

io::ImportanceMatrix collect(const io::File& file, std::string_view text,
                             const ImportanceOptions& options) {
  const std::int64_t context = DecoderConfig::from(file).context_length;
  if (options.chunk < 2 || options.chunk > context) {
    throw Error(Errc::bad_argument, "collect_importance",
                fmt::format("pieces of {} tokens; there can be 2 to {}", options.chunk, context));
  }
  const auto pieces = pieces_of(load_tokenizer(file), text, options);
  Collector collector(file, options);
  for (const std::vector<std::int32_t>& piece : pieces) {
    if (options.progress) options.progress(collector.matrix().chunk_count, std::ssize(pieces));
    collector.read(piece);
  }
  return collector.matrix();
}

}  // namespace

io::ImportanceMatrix collect_importance(const io::File& file, std::string_view text,
                                        const ImportanceOptions& options) {
  return with_memory_errors("collect_importance", [&] {
    return with_page_checks(file, [&] { return collect(file, text, options); });
  });
}

}  // namespace tenon::models
