#pragma once

#include "language_model_impl.hpp"
#include "memory/large_pages.hpp"
#include "used_cache.hpp"

#include <tenon/device.hpp>
#include <tenon/nn/token_sampling.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::models {

inline Buffer number_buffer(std::int64_t number) {
  return HostBuffer::of<std::int32_t>(number_shape(), {static_cast<std::int32_t>(number)})
      .to_device(cpu_device());
}

inline Buffer ids_buffer(std::span<const std::int32_t> tokens) {
  return HostBuffer::of(ids_shape(static_cast<std::int64_t>(tokens.size())), tokens)
      .to_device(cpu_device());
}

inline bool is_true(const Buffer& flag) { return flag.to_host().values<bool>()[0]; }

/// The most probable tokens of `count` positions, -1 where no logit is a number.
template <class Choice>
std::vector<std::int32_t> chosen_tokens(const Choice& choice, std::size_t count) {
  const HostBuffer ids = choice.token.to_host();
  const HostBuffer is_nan = choice.is_nan.to_host();
  std::vector<std::int32_t> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_none = is_nan.values<bool>()[i];
    chosen.push_back(is_none ? -1 : ids.values<std::int32_t>()[i]);
  }
  return chosen;
}

template <class Buffers>
auto shapes_of(const Buffers& buffers) {
  return map_fields<Shape>(buffers,
                           [](const std::string&, const Buffer& buffer) { return buffer.shape(); });
}

/// The decoder with attention that is not causal: rows that are read at once see each other.
inline Decoder<> with_mutual_attention(Decoder<> decoder) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::unsupported, decoder.config.architecture,
                "embeddings that attend to each other in both directions: " + why);
  };
  if (decoder.config.is_recurrent()) refuse("its states only move on");
  if (decoder.config.latent) refuse("its attention is latent");
  if (decoder.config.max_alibi_bias != 0) refuse("it has ALiBi");
  if (decoder.config.attention_chunk > 0) refuse("it attends in chunks");
  for (DecoderLayer<>& layer : decoder.layers) {
    if (layer.attention) layer.attention->options.causal = false;
  }
  return decoder;
}

struct Conversation::Impl {
  /// Drawing tokens where the model runs.
  struct Sampling {
    BoundExe<&Decoder<>::sampled> step;
    std::optional<BoundExe<&Decoder<>::sampled_again>> again{};
    nn::SamplerOptions options{};
    nn::SamplingInputs<Buffer> inputs{};  // the options, in the model's memory
  };
  /// The last token that a program has chosen, and where it lies: what the next step reads.
  struct DrawnToken {
    Buffer buffer{};
    std::int32_t id = -1;
  };

  std::shared_ptr<LanguageModel::Impl> model;
  BoundExe<&Decoder<>::next> next;
  // Made when they are first asked for.
  std::optional<BoundExe<&Decoder<>::all>> all;
  std::optional<BoundExe<&Decoder<>::greedy>> greedy;
  std::optional<BoundExe<&Decoder<>::all_greedy>> all_greedy;
  std::optional<BoundExe<&Decoder<>::guess>> guess;
  std::optional<Sampling> sampling;
  std::optional<BoundExe<&Decoder<>::next_of_rows>> causal_rows, mutual_rows;
  std::optional<BoundExe<&Decoder<>::next_of_image>> image_rows;
  DrawnToken drawn;
  DecoderCache<Buffer> cache;
  std::vector<std::int32_t> tokens;  // that it holds
  std::vector<ImagePlace> images;    // among them, where positions of images have two axes
  HostBuffer logits;
  bool cache_in_large_pages = false;
  std::chrono::nanoseconds plan_time{};
  const void* planned_exe = nullptr;
  std::size_t planned_tokens = 0;
  bool profile = false;
  std::shared_ptr<Trace> trace{};
  std::vector<StepTime> times{};
  bool has_lost_states = false;     // the next read begins with new ones
  std::int32_t shift_of_cache = 0;  // what cache.shift holds
  std::unique_ptr<std::atomic_flag> is_used = std::make_unique<std::atomic_flag>();

  /// Held while somebody uses it.
  class Use {
   public:
    explicit Use(Impl& conversation) : is_used_(*conversation.is_used) {
      if (!is_used_.test_and_set()) return;
      throw Error(Errc::busy, "Conversation",
                  "is in use, on another thread or because what it calls uses it; a model has any "
                  "number of conversations");
    }
    ~Use() { is_used_.clear(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::atomic_flag& is_used_;
  };

  static std::shared_ptr<Impl> make(std::shared_ptr<LanguageModel::Impl> model) {
    BoundExe<&Decoder<>::next> next = model->bound->fork();
    DecoderCache<Buffer> cache = model->empty_cache();
    return std::make_shared<Impl>(Impl{std::move(model),
                                       std::move(next),
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       std::nullopt,
                                       {},
                                       std::move(cache),
                                       {},
                                       {},
                                       {}});
  }

  template <class Bound>
  void watch(Bound& exe) const {
    exe.enable_time_profile(profile);
    exe.set_trace(trace);
  }
  void set_watch(bool wanted, std::shared_ptr<Trace> to) {
    if (all || greedy || all_greedy || guess || sampling || causal_rows || mutual_rows ||
        image_rows) {
      throw Error(Errc::call_order, "Conversation", "options are set before the first read");
    }
    next.enable_time_profile(wanted);
    next.set_trace(to);
    profile = wanted;
    trace = std::move(to);
  }

  void check(std::span<const std::int32_t> more) const {
    if (more.empty()) throw Error(Errc::bad_argument, "Conversation", "no tokens to read");
    check_room(more.size());
    for (const std::int32_t token : more) {
      if (token < 0 || token >= model->config.vocabulary) {
        throw Error(Errc::out_of_range, "Conversation",
                    fmt::format("token {} outside [0, {})", token, model->config.vocabulary));
      }
    }
  }

  void check_room(std::size_t more) const {
    if (static_cast<std::int64_t>(more) <= capacity() - position()) return;
    throw Error(
        Errc::limit_exceeded, "Conversation",
        fmt::format("{} tokens after {} do not fit a context of {}", more, position(), capacity()));
  }
  static std::size_t count_rows(std::span<const float> rows, std::int64_t width) {
    const auto size = static_cast<std::size_t>(width);
    if (rows.empty() || rows.size() % size != 0) {
      throw Error(Errc::bad_argument, "Conversation",
                  fmt::format("{} numbers are no rows of {}", rows.size(), width));
    }
    return rows.size() / size;
  }
  /// The same of embeddings: how many there are.
  std::size_t check_rows(std::span<const float> rows, RowAttention attention) const {
    const DecoderConfig& config = model->config;
    const std::size_t count = count_rows(rows, config.width);
    if (attention == RowAttention::mutual && config.window > 0 &&
        static_cast<std::int64_t>(count) > config.window) {
      throw Error(Errc::unsupported, config.architecture,
                  fmt::format("{} embeddings that attend to each other in a window of {}", count,
                              config.window));
    }
    check_room(count);
    return count;
  }
  /// The same of an image whose positions have two axes.
  std::size_t check_image(std::span<const float> rows, const ImageGrid& grid) const {
    const DecoderConfig& config = model->config;
    if (!config.image_axes) {
      throw Error(Errc::unsupported, config.architecture,
                  "images with positions of two axes: the model has no rotation for them");
    }
    const std::size_t count = count_rows(rows, config.image_row());
    if (grid.rows < 1 || grid.columns < 1 || grid.rows > capacity() || grid.columns > capacity() ||
        grid.embeddings() != static_cast<std::int64_t>(count)) {
      throw Error(
          Errc::bad_argument, "Conversation",
          fmt::format("{} embeddings are no image of {} x {}", count, grid.rows, grid.columns));
    }
    check_room(count);
    return count;
  }

  // Attention reads a long context from large pages a quarter faster. From the beginning they would
  // cost short conversations the memory of a full context: every layer has its own range.
  void settle_cache() noexcept {
    if (cache_in_large_pages || 4 * position() < capacity() || !model->memory().is_host()) return;
    cache_in_large_pages = true;
    try {
      visit_fields(cache.attention, [](const std::string&, const Buffer& part) {
        move_to_large_pages(part.host_view().data, static_cast<std::size_t>(part.shape().bytes()));
      });
    } catch (const std::bad_alloc&) {  // it stays where it is
    }
  }
  std::int64_t capacity() const { return model->options.context; }
  std::int64_t position() const { return static_cast<std::int64_t>(tokens.size()); }
  /// The last position up to `wanted` that states can go back to.
  std::int64_t rewindable(std::int64_t wanted) const {
    if (wanted >= position()) return position();
    if (model->config.is_recurrent()) return 0;
    // The beginning of embeddings that were read at once: some may have seen those behind them.
    const std::int32_t at = wanted < 0 ? 0 : tokens[static_cast<std::size_t>(wanted)];
    return at < 0 ? -1 - std::int64_t{at} : wanted;
  }
  void rewind(std::int64_t wanted) {
    if (wanted == position()) return;
    if (model->config.is_recurrent()) has_lost_states = true;  // back to the beginning
    tokens.resize(static_cast<std::size_t>(wanted));
    while (!images.empty() && images.back().end > wanted) images.pop_back();
  }
  /// What is added to the number of a new token for its position.
  std::int32_t shift() const { return images.empty() ? 0 : images.back().shift; }
  /// Copies what it holds to a cache of as many positions or more.
  void copy_to(const DecoderCache<Buffer>& other) {
    const Use use(*this);
    copy_parts(used(), used_parts(model->config, other, position()));
  }
  /// Without tokens yet, it begins with these, of which another cache has what they take.
  void fill(std::span<const std::int32_t> first, const DecoderCache<Buffer>& other) {
    const Use use(*this);
    reserve(first.size());
    begin();
    const auto count = static_cast<std::int64_t>(first.size());
    const std::vector<UsedPart> from = used_parts(model->config, other, count),
                                to = used_parts(model->config, cache, count);
    has_lost_states = model->config.is_recurrent();  // unless all of them are copied
    copy_parts(from, to);
    has_lost_states = false;
    tokens.assign(first.begin(), first.end());
  }
  std::vector<UsedPart> used() const {
    return tokens.empty() ? std::vector<UsedPart>() : used_parts(model->config, cache, position());
  }

  /// Plans a forward on an input for so many positions, unless the last one had as many. `more`: its
  /// arguments behind the cache.
  template <class Bound, class... More>
  void plan(Bound& exe, const Shape& input, std::size_t count, const More&... more) {
    if (planned_exe == &exe && planned_tokens == count) return;
    Stopwatch watch;
    exe.prepare(model->shapes_for(input, shapes_of(more)...));
    plan_time += watch.lap();
    planned_exe = &exe;
    planned_tokens = count;
  }

  template <class Bound>
  void keep_times(const Bound& exe) {
    const std::span<const StepTime> taken = exe.step_times();
    times.insert(times.end(), taken.begin(), taken.end());
  }

  /// Whether a run that ends early would leave states between two positions. Runs of several tokens
  /// work on a copy; of one token that copy would be much of the time.
  bool moves_states(std::size_t count) const { return model->config.is_recurrent() && count == 1; }

  /// Room for more tokens, so that they can be added when they were read.
  void reserve(std::size_t more) {
    const std::size_t needed = tokens.size() + more;
    if (needed > tokens.capacity()) tokens.reserve(std::max(needed, 2 * tokens.capacity()));
  }

  /// Before a step: new states where they were lost, and the shift of its positions.
  void begin() {
    if (has_lost_states) {
      cache = model->empty_cache();
      shift_of_cache = 0;
      has_lost_states = false;
    }
    if (cache.shift && shift_of_cache != shift()) {
      cache.shift = number_buffer(shift());
      shift_of_cache = shift();
    }
  }
  void lose_states() {
    has_lost_states = true;
    tokens.clear();
    images.clear();
  }

  /// What reading the tokens `read` gives. When it throws, the cache is what it was; states that only
  /// move on are lost where they have moved.
  template <class Bound, class... More>
  auto step(Bound& exe, std::span<const std::int32_t> read, const More&... more) {
    const bool is_drawn = read.size() == 1 && read.front() == drawn.id;
    return step_of(exe, is_drawn ? drawn.buffer.with_shape(ids_shape(1)) : ids_buffer(read), read,
                   more...);
  }
  /// The same of an input that stands for `read`.
  template <class Bound, class... More>
  auto step_of(Bound& exe, const Buffer& input, std::span<const std::int32_t> read,
               const More&... more) {
    plan(exe, input.shape(), read.size(), more...);
    reserve(read.size());
    begin();
    DecoderCache<Buffer> states;  // further handles, so that the run does not write to them
    if (model->config.is_recurrent() && !moves_states(read.size())) {
      states = cache;
      states.attention.clear();  // of which a run writes behind the positions that it has
    }
    bool has_moved = moves_states(read.size());
    try {
      auto state = exe(input, number_buffer(position()), std::move(cache), more...);
      has_moved = model->config.is_recurrent();
      cache = std::move(state.cache);
      keep_times(exe);
      model->file.check_pages();
      tokens.insert(tokens.end(), read.begin(), read.end());
      settle_cache();
      return state;
    } catch (...) {
      if (has_moved) lose_states();
      throw;
    }
  }

  /// The same in chunks: what reading the last of them gives.
  template <class Bound, class... More>
  auto steps(Bound& exe, std::span<const std::int32_t> all_tokens, const Interrupt& interrupt,
             const More&... more) {
    const auto chunk = static_cast<std::size_t>(model->options.chunk);
    times.clear();
    const auto read = [&](std::span<const std::int32_t> piece) {
      interrupt.check("Conversation");
      exe.set_interrupt(moves_states(piece.size()) ? Interrupt() : interrupt);
      return step(exe, piece, more...);
    };
    std::span<const std::int32_t> rest = all_tokens;
    for (; rest.size() > chunk; rest = rest.subspan(chunk)) read(rest.first(chunk));
    return read(rest);
  }

  /// A program of its own that reads tokens, made when it is first asked for; `shared` is the model's.
  template <auto Forward>
  BoundExe<Forward>& own(std::optional<BoundExe<Forward>>& exe,
                         std::optional<BoundExe<Forward>>& shared, std::int64_t first) {
    if (!exe) {
      exe.emplace(model->shared<Forward>(shared, model->shapes(first)));
      watch(*exe);
    }
    return *exe;
  }

  /// Reads tokens in chunks, and calls `take` with what each gives and with its size.
  template <class Bound, class Take>
  void each_step(Bound& exe, std::span<const std::int32_t> read, std::size_t chunk,
                 const Interrupt& interrupt, const Take& take) {
    times.clear();
    while (!read.empty()) {
      interrupt.check("Conversation");
      const auto piece = read.first(std::min(chunk, read.size()));
      exe.set_interrupt(moves_states(piece.size()) ? Interrupt() : interrupt);
      take(step(exe, piece), piece.size());
      read = read.subspan(piece.size());
    }
  }

  /// Reads `count` rows, at most `chunk` at once, by `read(rows, ids, number of the first)`, and gives what the last one
  /// does.
  template <class Bound, class Read>
  auto row_steps(Bound& exe, std::span<const float> rows, std::size_t count, std::size_t chunk,
                 const Interrupt& interrupt, const Read& read) {
    const std::vector<std::int32_t> ids(count, static_cast<std::int32_t>(-1 - position()));
    const std::size_t width = rows.size() / count;
    times.clear();
    const auto read_piece = [&](std::size_t begin, std::size_t size) {
      interrupt.check("Conversation");
      exe.set_interrupt(moves_states(size) ? Interrupt() : interrupt);
      const HostBuffer piece = HostBuffer::of(
          rows_shape(static_cast<std::int64_t>(size), static_cast<std::int64_t>(width)),
          rows.subspan(begin * width, size * width));
      return read(piece.to_device(model->device), std::span(ids).first(size), begin);
    };
    std::size_t begin = 0;
    for (; count - begin > chunk; begin += chunk) read_piece(begin, chunk);
    return read_piece(begin, count - begin);
  }

  /// What reading embeddings gives, all at once where each attends to all.
  auto read_rows(std::span<const float> rows, RowAttention attention, const Interrupt& interrupt) {
    const std::size_t count = check_rows(rows, attention);
    const bool is_mutual = attention == RowAttention::mutual;
    const std::size_t chunk = is_mutual ? count : static_cast<std::size_t>(model->options.chunk);
    auto& exe = is_mutual ? mutual_rows : causal_rows;
    if (!exe) {
      const auto first = static_cast<std::int64_t>(std::min(count, chunk));
      exe.emplace(model->shared<&Decoder<>::next_of_rows>(
          is_mutual ? model->mutual_rows : model->causal_rows,
          model->shapes_for(rows_shape(first, model->config.width)),
          is_mutual ? with_mutual_attention(model->decoder) : model->decoder));
      watch(*exe);
    }
    return row_steps(*exe, rows, count, chunk, interrupt,
                     [&](const Buffer& piece, std::span<const std::int32_t> ids, std::size_t) {
                       return step_of(*exe, piece, ids);
                     });
  }

  /// The same of an image whose positions have two axes.
  auto read_image(std::span<const float> rows, const ImageGrid& grid, const Interrupt& interrupt) {
    const std::size_t count = check_image(rows, grid);
    const auto chunk = static_cast<std::size_t>(model->options.chunk);
    const auto places_shape = [](std::size_t size) {
      return Shape({3, static_cast<std::int64_t>(size)}, i32);
    };
    if (!image_rows) {
      const std::size_t first = std::min(count, chunk);
      image_rows.emplace(model->shared<&Decoder<>::next_of_image>(
          model->image_rows,
          model->shapes_for(rows_shape(static_cast<std::int64_t>(first), model->config.image_row()),
                            places_shape(first))));
      watch(*image_rows);
    }
    const std::int64_t first = position(), start = first + shift();
    const auto read = [&](const Buffer& piece, std::span<const std::int32_t> ids,
                          std::size_t begin) {
      HostBuffer places = HostBuffer::uninitialized(places_shape(ids.size()));
      const auto axes = places.mutable_values<std::int32_t>();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto at = static_cast<std::int64_t>(begin + i);
        axes[i] = static_cast<std::int32_t>(start);
        axes[ids.size() + i] = static_cast<std::int32_t>(start + at / grid.columns);
        axes[2 * ids.size() + i] = static_cast<std::int32_t>(start + at % grid.columns);
      }
      auto state = step_of(*image_rows, piece, ids, places.to_device(cpu_device()));
      if (begin > 0) images.pop_back();
      // Of an image that is read in part, too: what follows stands behind the greatest position.
      const std::int64_t done = position() - first;
      const std::int64_t extent =
          std::max(std::min(done, grid.columns), (done + grid.columns - 1) / grid.columns);
      images.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(position()),
                        static_cast<std::int32_t>(start + extent - position())});
      return state;
    };
    images.reserve(images.size() + 1);
    return row_steps(*image_rows, rows, count, chunk, interrupt, read);
  }

  /// The number of a token, i32[1], which the next step may read.
  std::int32_t taken(Buffer token) {
    drawn.id = token.to_host().values<std::int32_t>()[0];
    drawn.buffer = std::move(token);
    return drawn.id;
  }

  /// Tokens in the first piece of a text.
  std::int64_t first_piece(std::span<const std::int32_t> text) const {
    return std::min(static_cast<std::int64_t>(text.size()), model->options.chunk);
  }

  /// Ready to draw by these options after reading `read`.
  Sampling& sampling_for(const nn::SamplerOptions& options, std::span<const std::int32_t> history,
                         std::span<const std::int32_t> read) {
    const std::int64_t vocabulary = model->config.tokens;
    const auto on_device = [&](const HostBuffer& values) {
      return values.to_device(model->device);
    };
    if (sampling && sampling->options == options) {
      sampling->inputs.seen = on_device(nn::seen_tokens(options, history, vocabulary));
      return *sampling;
    }
    auto inputs = map_fields<Buffer>(
        nn::sampling_inputs(options, history, vocabulary),
        [&](const std::string&, const HostBuffer& values) { return on_device(values); });
    if (!sampling) {
      sampling.emplace(Sampling{model->shared<&Decoder<>::sampled>(
          model->sampled, model->shapes(first_piece(read), shapes_of(inputs)))});
      watch(sampling->step);
    }
    sampling->options = options;
    sampling->inputs = std::move(inputs);
    return *sampling;
  }

  /// The logits behind the last of `read`, and the most probable token, -1 where no logit is a number.
  HostBuffer next_logits(std::span<const std::int32_t> read, const Interrupt& interrupt) {
    const Use use(*this);
    check(read);
    return steps(next, read, interrupt).logits.to_host();
  }
  std::int32_t most_probable(std::span<const std::int32_t> read, const Interrupt& interrupt) {
    const Use use(*this);
    check(read);
    auto choice = steps(own(greedy, model->greedy, first_piece(read)), read, interrupt);
    return is_true(choice.is_nan) ? -1 : taken(std::move(choice.token));
  }

  /// One token in each of several conversations with one model; `result_of` is called with what the step gives. When it
  /// throws, they are what they were, but for states that only move on, which are lost.
  template <auto Forward, class ResultOf>
  static auto step_each(std::span<Impl* const> all, std::span<const std::int32_t> read,
                        LanguageModel::Impl::IdlePrograms<Forward>& idle,
                        const Interrupt& interrupt, const ResultOf& result_of) {
    LanguageModel::Impl& model = *all.front()->model;
    std::deque<Use> uses;
    for (std::size_t i = 0; i < all.size(); ++i) {
      uses.emplace_back(*all[i]);
      all[i]->check(read.subspan(i, 1));
    }
    interrupt.check("LanguageModel::read_each");
    LanguageModel::Impl::EachProgram<Forward> program(model, idle, all.size());
    (*program).set_interrupt(model.config.is_recurrent() ? Interrupt() : interrupt);
    std::vector<std::int32_t> past;
    for (Impl* const one : all) {
      one->reserve(1);
      one->begin();
      past.push_back(static_cast<std::int32_t>(one->position()));
    }
    const auto count = static_cast<std::int64_t>(all.size());
    const Buffer ids = HostBuffer::of(Shape({count, 1}, i32), read).to_device(cpu_device());
    const Buffer places = HostBuffer::of(Shape({count}, i32), std::span<const std::int32_t>(past))
                              .to_device(cpu_device());
    std::vector<DecoderCache<Buffer>> caches(all.size());
    const auto swap_caches = [&](std::vector<DecoderCache<Buffer>>& with) {
      for (std::size_t i = 0; i < all.size(); ++i) std::swap(all[i]->cache, with[i]);
    };
    swap_caches(caches);
    bool has_run = false;
    try {
      auto state = (*program)(ids, places, std::move(caches));
      swap_caches(state.caches);
      has_run = true;
      model.file.check_pages();
      auto result = result_of(state);
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i]->times.clear();
        all[i]->tokens.push_back(read[i]);
        all[i]->settle_cache();
      }
      return result;
    } catch (...) {
      if (!has_run) swap_caches(caches);
      for (Impl* const one : all) {
        if (model.config.is_recurrent()) one->lose_states();
      }
      throw;
    }
  }

  std::int32_t sample(std::span<const std::int32_t> read, const nn::SamplerOptions& options,
                      std::span<const std::int32_t> history, const Interrupt& interrupt) {
    Sampling& now = sampling_for(options, history, read);
    auto made = steps(now.step, read, interrupt, now.inputs);
    if (is_true(made.is_known)) return taken(made.token);
    if (!now.again) {
      now.again.emplace(model->shared<&Decoder<>::sampled_again>(
          model->sampled_again, {made.logits.shape(), number_shape(), shapes_of(now.inputs)}));
      watch(*now.again);
    }
    auto again = (*now.again)(made.logits, number_buffer(position()), now.inputs);
    keep_times(*now.again);
    if (is_true(again.is_known)) return taken(again.token);
    // A logit is NaN, or none above -inf.
    const HostBuffer rows = made.logits.to_host();
    const auto vocabulary = static_cast<std::size_t>(model->config.tokens);
    nn::SamplerOptions here = options;
    here.seed += static_cast<std::uint64_t>(position());
    return nn::Sampler(here).sample(rows.values<float>().first(vocabulary), history);
  }
};

}  // namespace tenon::models
