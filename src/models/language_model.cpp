#include "base/block_number.hpp"
#include "conversation_impl.hpp"
#include "language_model_impl.hpp"

#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/prepare_progress.hpp>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::models {
namespace {

/// Tells the caller of a load how far it is, and ends it when asked to.
class LoadWatch {
 public:
  LoadWatch(const io::LoadOptions& options, std::string file)
      : options_(options), file_(std::move(file)) {}

  void set_total(std::uint64_t bytes) { progress_.total_bytes = bytes; }
  void check() const {
    if (!options_.stop.stop_requested()) return;
    throw Error(Errc::cancelled, file_,
                fmt::format("loading was cancelled with {} of {} bytes ready", progress_.done_bytes,
                            progress_.total_bytes));
  }
  void advance(std::string_view weight, std::uint64_t bytes) {
    check();
    tell(weight, progress_.done_bytes + bytes);
  }
  /// Weights that are used as they lie in the file need no work.
  void finish() {
    check();
    if (progress_.done_bytes < progress_.total_bytes) tell({}, progress_.total_bytes);
  }

 private:
  void tell(std::string_view weight, std::uint64_t done) {
    progress_.done_bytes = std::min(done, progress_.total_bytes);
    progress_.tensor = weight;
    if (options_.progress) options_.progress(progress_);
  }

  const io::LoadOptions& options_;
  std::string file_;
  io::LoadProgress progress_;
};

/// A warning with the tensors that no part of the model reads: an architecture with more to it than the file says.
void warn_of_unread(const io::File& file, const DecoderConfig& config, const WeightSet& read) {
  const auto is_left_out = [&](std::string_view name) {
    // One of two is read, by the context. The first layer of RWKV 7 has nothing to mix its values with. Layers that predict
    // further tokens come last.
    if (name.starts_with("rope_factors_")) return true;
    for (const std::string_view unused : {"v0", "v1", "v2"}) {
      if (name == fmt::format("blk.0.time_mix_{}.weight", unused)) return true;
    }
    return block_number(name) >= config.layers;
  };
  std::vector<std::string_view> unread;
  for (const io::TensorEntry& entry : file.tensors()) {
    if (!read.all().contains(entry.name) && !is_left_out(entry.name)) unread.push_back(entry.name);
  }
  if (unread.empty()) return;
  const std::size_t count = unread.size();
  unread.resize(std::min<std::size_t>(count, 3));
  log(LogLevel::warning, fmt::format("{}: {} tensors are not read: {}{}", file.path().string(),
                                     count, fmt::join(unread, ", "), count > 3 ? ", ..." : ""));
}

std::uint64_t bytes_of(const WeightSet& weights) {
  std::uint64_t bytes = 0;
  for (const auto& [name, buffer] : weights.all()) {
    bytes += static_cast<std::uint64_t>(buffer.shape().bytes());
  }
  return bytes;
}

}  // namespace

LanguageModel LanguageModel::load(const std::filesystem::path& path,
                                  const LanguageModelOptions& options) {
  return with_memory_errors(path.native(), [&] {
    Stopwatch watch;
    LoadWatch progress(options.load, path.filename().string());
    progress.check();
    const io::File file = io::open(path, {.access = io::Access::guarded});
    return with_page_checks(file, [&] {
      auto impl = std::make_shared<Impl>(file, options);
      LoadTimes& times = impl->load_times;
      const auto prepared = options.packed_folder.empty()
                                ? std::make_shared<PreparedCache>()
                                : std::make_shared<PreparedCache>(
                                      io::prepared_file(options.packed_folder, impl->file));
      auto tokenizer = std::async(std::launch::async, [&file = impl->file, prepared] {
        return load_tokenizer(file, *prepared);
      });
      auto loading = io::load_async(impl->plain, impl->file, impl->device,
                                    {.progress = {}, .stop = options.load.stop});
      times.map += watch.lap();
      placed_in(impl->file, [&] {
        impl->next.emplace(impl->decoder, impl->shapes(1), impl->compile_options);
        if (!options.lazy)
          static_cast<void>(impl->next->report());  // planned while weights are mapped
      });
      times.plan += watch.lap();
      impl->bound.emplace(impl->next->bind(impl->complete(loading.get()), prepared));
      warn_of_unread(impl->file, impl->config, impl->bound->weights());
      progress.set_total(bytes_of(impl->bound->weights()));
      times.map += watch.lap();
      if (!options.lazy) {
        const PrepareProgress listening([&progress](std::string_view weight, std::uint64_t bytes) {
          progress.advance(weight, bytes);
        });
        impl->bound->prepare(impl->shapes(1));
      }
      progress.finish();
      times.pack += watch.lap();
      impl->set_tokenizer(tokenizer.get());
      // Headers and vocabularies have been read.
      for (const auto& shard : impl->file.shards()) {
        shard->advise(0, shard->size(), io::InputFile::Advice::dont_need);
      }
      times.tokenizer += watch.lap();
      return LanguageModel(std::move(impl));
    });
  });
}

const DecoderConfig& LanguageModel::config() const { return impl_->config; }
const text::Tokenizer& LanguageModel::tokenizer() const { return *impl_->tokenizer; }
const io::File& LanguageModel::file() const { return impl_->file; }
std::int64_t LanguageModel::context() const { return impl_->options.context; }
std::int64_t LanguageModel::chunk() const { return impl_->options.chunk; }
const LoadTimes& LanguageModel::load_times() const { return impl_->load_times; }
const Program& LanguageModel::program() const { return impl_->next->program(); }
PlanReport LanguageModel::plan() const { return impl_->next->report(); }

std::optional<text::ChatFormat> LanguageModel::chat_format(text::ChatVariables variables,
                                                           std::string_view name) const {
  return load_chat_format(impl_->file, *impl_->tokenizer, std::move(variables), name);
}

Conversation LanguageModel::conversation() const {
  return with_memory_errors("LanguageModel::conversation",
                            [&] { return Conversation(Conversation::Impl::make(impl_.shared())); });
}

std::vector<Conversation::Impl*> LanguageModel::Impl::each_of(
    std::span<const Conversation> conversations, std::span<const std::int32_t> tokens) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::bad_argument, "LanguageModel::read_each", why);
  };
  if (conversations.empty()) refuse("no conversations");
  if (conversations.size() != tokens.size()) {
    refuse(fmt::format("{} tokens for {} conversations", tokens.size(), conversations.size()));
  }
  std::vector<Conversation::Impl*> found;
  for (const Conversation& conversation : conversations) {
    Conversation::Impl* const one = &*conversation.impl_;
    if (one->model.get() != this) refuse("a conversation is one of another model");
    if (std::ranges::find(found, one) != found.end()) refuse("a conversation stands there twice");
    found.push_back(one);
  }
  return found;
}

HostBuffer LanguageModel::read_each(std::span<const Conversation> conversations,
                                    std::span<const std::int32_t> tokens,
                                    const Interrupt& interrupt) const {
  return with_memory_errors("LanguageModel::read_each", [&] {
    const std::vector<Conversation::Impl*> all = impl_->each_of(conversations, tokens);
    if (all.size() == 1) return all[0]->next_logits(tokens, interrupt);
    return Conversation::Impl::step_each(all, tokens, impl_->each, interrupt,
                                         [](const auto& state) { return state.logits.to_host(); });
  });
}

std::vector<std::int32_t> LanguageModel::read_each_greedy(
    std::span<const Conversation> conversations, std::span<const std::int32_t> tokens,
    const Interrupt& interrupt) const {
  return with_memory_errors("LanguageModel::read_each_greedy", [&] {
    const std::vector<Conversation::Impl*> all = impl_->each_of(conversations, tokens);
    if (all.size() == 1) return std::vector{all[0]->most_probable(tokens, interrupt)};
    return Conversation::Impl::step_each(
        all, tokens, impl_->each_greedy, interrupt,
        [&](const auto& choice) { return chosen_tokens(choice, all.size()); });
  });
}

Conversation LanguageModel::restore(const std::filesystem::path& path) const {
  return with_memory_errors(path.native(), [&] {
    const ConversationFile file(path, impl_->origin(), context(), config().vocabulary,
                                config().image_axes.has_value());
    auto made = Conversation::Impl::make(impl_.shared());
    made->tokens = file.tokens();
    made->images = file.images();
    file.read(made->used());
    return Conversation(std::move(made));
  });
}

}  // namespace tenon::models
