// A stage while somebody watches: callbacks, log, dumps, times, trace.
#include "array/object_slot.hpp"
#include "session/parts.hpp"
#include "session/run.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/layout.hpp>
#include <tenon/log.hpp>
#include <tenon/object.hpp>
#include <tenon/stepwise.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {

using namespace sessions;

namespace {

std::string_view op_of(const Stage& stage) {
  const Step* const step = stage.only_step();
  return step != nullptr ? sessions::op_of(*step) : "";
}

std::string_view function_of(const Stage& stage) {
  const Step* const step = stage.only_step();
  return step != nullptr ? std::string_view(step->function) : "";
}

std::string title_of(const Stage& stage, std::span<const std::string> values) {
  if (values.size() == 1) return fmt::format("{} = {}", values[0], op_of(stage));
  return fmt::format("{} to {} ({} ops, merged)", values.front(), values.back(), values.size());
}

std::string types_of(std::span<const Buffer> buffers) {
  std::vector<std::string> types;
  for (const Buffer& buffer : buffers) types.push_back(to_string(buffer.shape()));
  return fmt::format("{}", fmt::join(types, ", "));
}

/// A value's name as a file name: what no file system minds.
std::string file_name(const std::string& value) {
  std::string name = value;
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return name;
}

/// How the backend holds the value of a stage of one step, where that is not as it shows it.
std::optional<StoredForm> stored_form_of(const BoundStage& stage) {
  const auto* const stores = dynamic_cast<const StoresIntegers*>(stage.partition.get());
  return stores != nullptr && stage.stage->steps.size() == 1 ? stores->stored_form() : std::nullopt;
}

/// A value that is shown as f32, as the integers and in the blocks that its backend holds.
Buffer as_stored(const Buffer& shown, const StoredForm& form) {
  const HostBuffer real = shown.to_host();
  const int rank = real.shape().rank();
  const auto axis = form.quant.is_per_channel() ? form.software.find_axis(form.quant.axis, rank)
                                                : std::optional<int>();
  HostBuffer integers = HostBuffer::uninitialized(real.shape().with_dtype(i8));
  auto next = integers.mutable_values<std::int8_t>().begin();
  for_each_index(real.shape(), [&](std::span<const std::int64_t> index) {
    const double factor = form.quant.factor(axis ? index[static_cast<std::size_t>(*axis)] : 0);
    const double value = *reinterpret_cast<const float*>(real.view().at(index)) / factor;
    *next++ = static_cast<std::int8_t>(std::clamp(std::nearbyint(value), -128.0, 127.0));
  });
  Buffer stored = relayout(integers, form.software, form.hardware).to_device(cpu_device());
  const auto blocked = form.software.find_axis(form.hardware.block_axis(), rank);
  stored.set_format({.extent = real.shape()[blocked.value_or(rank - 1)],
                     .software = form.software,
                     .quant = form.quant});
  return stored;
}

}  // namespace

Buffer Session::Run::buffer_of(const Operand& operand, std::size_t memory) const {
  if (operand.place.kind == Place::Kind::loop_index) {
    return HostBuffer::of<std::int64_t>(operand.shape, {host_.loop_index[operand.place.index]})
        .to_device(cpu_device());
  }
  Spot spot;
  const std::int64_t offset = operand.place.offset_in(host_.iteration);
  if (operand.place.kind == Place::Kind::constant) {
    const Buffer& constant = bound_->constants[operand.place.entry_in(host_.iteration)];
    spot = {&constant.chunk(), static_cast<std::int64_t>(constant.offset_bytes())};
  } else {
    spot = spaces_[memory][key_of(operand.place)];
  }
  if (is_object(operand.shape.dtype())) {
    const MemPtr element = spot.begin();
    if (element.is_null()) return Buffer::allocate(operand.shape, *plan_.memories[0]);
    return objects::share(HostView((element + offset).cptr(), operand.shape));
  }
  if (operand.shape.elements() == 0) return Buffer::allocate(operand.shape, *plan_.memories[0]);
  if (operand.is_contiguous()) {
    return Buffer(operand.shape, *spot.chunk, static_cast<std::uint64_t>(spot.offset + offset));
  }
  // Elements that lie apart: a dense copy in CPU memory.
  Operand at_zero = operand;
  at_zero.place = {};
  const ByteRange reach = byte_range(at_zero);
  std::vector<std::byte> bytes(static_cast<std::size_t>(reach.size()));
  spot.chunk->read(bytes.data(), static_cast<std::uint64_t>(spot.offset + offset + reach.begin),
                   bytes.size());
  HostBuffer dense = HostBuffer::uninitialized(operand.shape);
  copy_elements(HostView(bytes.data() - reach.begin, operand.shape, operand.strides), dense.view());
  return dense.to_device(cpu_device());
}

std::vector<Buffer> Session::Run::inputs_of(const Stage& stage) const {
  std::vector<Buffer> buffers;
  const Step* const step = stage.only_step();
  for (const Operand& read : step != nullptr ? step->inputs : stage.edges.reads) {
    buffers.push_back(buffer_of(read, stage.memory));
  }
  return buffers;
}

std::vector<Buffer> Session::Run::outputs_of(const Stage& stage) const {
  std::vector<Buffer> buffers;
  if (const Step* const step = stage.only_step()) {
    buffers.push_back(buffer_of(step->output, stage.memory));
    return buffers;
  }
  for (const Operand& write : stage.edges.writes) buffers.push_back(buffer_of(write, stage.memory));
  return buffers;
}

Buffer Session::Run::output_of(std::size_t index) {
  const Stage& stage = *bound_->stages[index].stage;
  const Buffer made = outputs_of(stage).front();
  if (const DType dtype = made.shape().dtype(); is_object(dtype)) {
    return is_linear_object(dtype) && object_class(dtype).copy ? copied_object(made) : made;
  }
  // A copy: the next step may overwrite what this one made.
  Buffer copy = Buffer::allocate(made.shape(), made.region());
  if (made.shape().bytes() > 0) {
    made.region().copy(copy.data(), made.data(), static_cast<std::uint64_t>(made.shape().bytes()));
  }
  check_memories();
  return copy;
}

// Before anything runs: a format that some value has not is no reason to stop half-way.
void Session::Run::check_dumps() const {
  const std::string& format = state_.options.dump_format;
  if (format.empty()) return;
  const auto is_one_of = [&](std::size_t at, std::string_view letters) {
    return letters.find(format[at]) != std::string_view::npos;
  };
  if (format.size() != 3 || !is_one_of(0, "HS") || !is_one_of(1, "FQ") || !is_one_of(2, "BT")) {
    throw Error(
        Errc::bad_argument, "Session::set_dump_outputs",
        fmt::format("'{}': expected no letters, or one each of H or S, F or Q, B or T", format));
  }
  check_dumps(bound_->stages);
}

void Session::Run::check_dumps(std::span<const BoundStage> stages) const {
  const std::string& format = state_.options.dump_format;
  for (const BoundStage& stage : stages) {
    check_dumps(stage.body);
    if (stage.partition == nullptr || stored_form_of(stage)) continue;
    const Step& step = stage.stage->steps.front();
    const DType dtype = step.output.shape.dtype();
    const bool is_real = is_floating(dtype) || is_block(dtype);
    if (format[0] != 'H' && (format[1] != 'Q' || !is_real)) continue;
    throw Error(Errc::bad_argument, step.value,
                fmt::format("{} on {} has no {}, which '{}' asks for", to_string(step.output.shape),
                            shared_.backends[stage.stage->backend]->name(),
                            format[0] == 'H' ? "hardware layout" : "fixed-point values", format));
  }
}

void Session::Run::dump(const BoundStage& bound) const {
  namespace fs = std::filesystem;
  const Stage& stage = *bound.stage;
  const RunOptions& options = state_.options;
  const std::string& format = options.dump_format;
  std::error_code failed;
  fs::create_directories(options.dump_folder, failed);
  const fs::path path =
      fs::path(options.dump_folder) /
      fmt::format("{}.{}", file_name(stage.steps.front().value), format.empty() ? "raw" : format);
  Buffer value = outputs_of(stage).front();
  if (const DType dtype = value.shape().dtype(); is_object(dtype)) {
    if (!object_class(dtype).save) return;
    value = save_object(value).to_device(cpu_device());
  }
  const bool is_as_shown = format.empty() || format.starts_with("SF");
  if (!is_as_shown) {
    if (const auto form = stored_form_of(bound)) value = as_stored(value, *form);
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) throw Error(Errc::io_error, path.string(), std::strerror(errno));
  value.dump(out, format);
  if (!out.flush()) throw Error(Errc::io_error, path.string(), "cannot be written");
}

/// Copies what the stage reads to where it runs; returns the time that took.
std::chrono::nanoseconds Session::Run::bring_in_timed(const Stage& stage, int depth) {
  std::chrono::nanoseconds spent{};
  bring_in(plan_, stage, host_.iteration, depth, residency_,
           [&](const StorageKey& key, const ByteRange& range, std::size_t from, std::size_t to) {
             const auto begin = Trace::Clock::now();
             copy(key, range, from, to);
             const auto end = Trace::Clock::now();
             spent += end - begin;
             if (Trace* const trace = state_.options.trace.get()) {
               trace->add("copies",
                          fmt::format("{} to {}", plan_.memories[from]->name(),
                                      plan_.memories[to]->name()),
                          begin, end, {{"bytes", fmt::format("{}", range.size())}});
             }
           });
  return spent;
}

/// What is kept of a stage that has run: events of a trace, a row of a profile, a line of the log.
void Session::Run::note_times(const Stage& stage, std::span<const std::string> values,
                              const StageTimes& times) {
  const RunOptions& options = state_.options;
  const std::string backend(shared_.backends[stage.backend]->name());
  const std::chrono::nanoseconds wall = times.end - times.begin;
  if (options.trace) {
    options.trace->add(backend, title_of(stage, values), times.begin + times.copies, times.end);
    for (std::size_t i = 0; i + 1 < marks_.size(); ++i) {
      if (marks_[i].values.empty()) continue;
      options.trace->add(backend, title_of(marks_[i].function, marks_[i].values), marks_[i].begin,
                         marks_[i + 1].begin);
    }
  }
  if (options.profile) {
    const auto other =
        std::max(wall - times.copies - times.device, std::chrono::nanoseconds::zero());
    state_.times.push_back({std::vector(values.begin(), values.end()), backend, wall, times.copies,
                            times.device, other, parts_of(stage, marks_, times.device)});
  }
  if (options.log_time) {
    log(LogLevel::info,
        fmt::format("{} on {}: {:.3f} ms (copies {:.3f} ms)", title_of(stage, values), backend,
                    std::chrono::duration<double, std::milli>(wall).count(),
                    std::chrono::duration<double, std::milli>(times.copies).count()));
  }
}

void Session::Run::run_watched(const BoundStage& bound, int depth) {
  const Stage& stage = *bound.stage;
  const RunOptions& options = state_.options;
  const Backend& backend = *shared_.backends[stage.backend];
  const std::vector<std::string> values = values_of(stage);
  std::vector<Buffer> inputs;
  const auto tell = [&](const StepCallback& callback, const std::vector<Buffer>& outputs) {
    if (!callback) return;
    callback({.values = values,
              .op = op_of(stage),
              .function = function_of(stage),
              .backend = backend,
              .inputs = inputs,
              .outputs = outputs});
  };

  StageTimes times{.begin = Trace::Clock::now()};
  if (plan_.has_devices()) times.copies = bring_in_timed(stage, depth);
  const bool shows_inputs = options.before || options.after || options.log_io;
  if (shows_inputs) {
    inputs = inputs_of(stage);
    tell(options.before, {});
    times.begin = Trace::Clock::now() - times.copies;  // callbacks are not part of a step's time
  }
  marks_.clear();
  host_.marks = options.profile || options.trace ? &marks_ : nullptr;
  compute(bound, times.device);
  if (plan_.has_devices()) note_writes(plan_, stage, host_.iteration, depth, residency_);
  times.end = Trace::Clock::now();
  note_times(stage, values, times);

  if (!shows_inputs && options.dump_folder.empty()) return;
  const std::vector<Buffer> outputs = outputs_of(stage);
  if (options.log_io) {
    log(LogLevel::info, fmt::format("{} on {}: ({}) -> ({})", title_of(stage, values),
                                    backend.name(), types_of(inputs), types_of(outputs)));
  }
  tell(options.after, outputs);
  if (!options.dump_folder.empty()) dump(bound);
}

}  // namespace tenon
