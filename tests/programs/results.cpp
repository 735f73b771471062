#include "results.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/device.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

double at(const HostBuffer& array, std::int64_t i) {
  const auto unit = block_bytes(array.shape().dtype());
  return load_as_double(array.shape().dtype(), array.bytes() + i * unit);
}

/// An array whose elements are numbers: of complex ones their parts.
HostBuffer readable(const HostBuffer& array) {
  if (is_complex(array.shape().dtype())) {
    const HostBuffer dense = array.contiguous();
    const Shape parts({2 * dense.shape().elements()}, f32);
    const HostBuffer result = HostBuffer::zeros(parts);
    std::copy_n(dense.bytes(), parts.bytes(), result.view().data);
    return result;
  }
  return is_block(array.shape().dtype()) ? array.to(f32) : array.contiguous();
}

/// Each float moved up or down by a rounding to bf16.
HostBuffer nudged(const HostBuffer& array, std::mt19937_64& engine) {
  const DType dtype = array.shape().dtype();
  if (!is_floating(dtype) && !is_complex(dtype)) return array;
  HostBuffer parts = readable(array.contiguous()).to(f64);
  for (double& value : parts.mutable_values<double>())
    value *= engine() % 2 ? 1 + 0x1p-9 : 1 - 0x1p-9;
  if (!is_complex(dtype)) return parts.to(dtype);
  parts = parts.to(f32);
  HostBuffer result = HostBuffer::zeros(array.shape());
  std::copy_n(parts.bytes(), parts.shape().bytes(), result.view().data);
  return result;
}

}  // namespace

std::vector<BackendPtr> cpu_backends(int threads, bool exact) {
  static std::vector<std::pair<std::pair<int, bool>, std::vector<BackendPtr>>> made;
  for (const auto& [key, backends] : made) {
    if (key == std::pair(threads, exact)) return backends;
  }
  made.push_back(
      {{threads, exact},
       {make_cpu_backend({.threads = threads, .exact = exact}), make_reference_backend({})}});
  return made.back().second;
}

double largest_error(const std::string& way, const Results& got, const Results& wanted,
                     double allowed) {
  if (got.size() != wanted.size()) throw Failure{way + ": another number of results"};
  double worst = 0;
  for (std::size_t r = 0; r < got.size(); ++r) {
    if (!(got[r].shape() == wanted[r].shape())) {
      throw Failure{fmt::format("{}: result {} is {}, not {}", way, r, to_string(got[r].shape()),
                                to_string(wanted[r].shape()))};
    }
    const HostBuffer a = readable(got[r]), b = readable(wanted[r]);
    double most = 1;
    for (std::int64_t i = 0; i < b.shape().elements(); ++i)
      most = std::max(most, std::fabs(at(b, i)));
    // A cache of blocks moves by a step of its blocks.
    const double slack = is_block(got[r].shape().dtype()) ? std::max(allowed, 0.03) : allowed;
    for (std::int64_t i = 0; i < b.shape().elements(); ++i) {
      const double error = std::fabs(at(a, i) - at(b, i));
      if (!(error <= slack * most)) {
        throw Failure{fmt::format("{}: element {} of result {} ({}) is {}, not {}", way, i, r,
                                  to_string(b.shape()), at(a, i), at(b, i))};
      }
      worst = std::max(worst, error / (slack * most));
    }
  }
  return worst;
}

void compare_bits(const std::string& way, const Results& got, const Results& wanted) {
  if (got.size() != wanted.size()) throw Failure{way + ": another number of results"};
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    if (!(got[r].shape() == wanted[r].shape())) {
      throw Failure{fmt::format("{}: result {} is {}, not {}", way, r, to_string(got[r].shape()),
                                to_string(wanted[r].shape()))};
    }
    const auto size = static_cast<std::size_t>(wanted[r].shape().bytes());
    if (size == 0 || std::memcmp(got[r].bytes(), wanted[r].bytes(), size) == 0) continue;
    const auto* const begin = got[r].bytes();
    const auto different = std::mismatch(begin, begin + size, wanted[r].bytes()).first - begin;
    throw Failure{fmt::format("{}: result {} ({}) has other bits, from byte {} on", way, r,
                              to_string(wanted[r].shape()), different)};
  }
}

bool is_finite(const Results& results) {
  return std::ranges::all_of(results, [](const HostBuffer& result) {
    const HostBuffer array = is_complex(result.shape().dtype()) ? readable(result) : result;
    if (!is_floating(array.shape().dtype())) return true;
    for (std::int64_t i = 0; i < array.shape().elements(); ++i) {
      if (!std::isfinite(at(array, i))) return false;
    }
    return true;
  });
}

std::map<std::string, Buffer> on_cpu(const std::map<std::string, HostBuffer>& values) {
  std::map<std::string, Buffer> weights;
  for (const auto& [name, value] : values) {
    weights[name] = value.contiguous().to_device(cpu_device());
  }
  return weights;
}

std::vector<Buffer> on_cpu(const Results& values) {
  std::vector<Buffer> given;
  for (const HostBuffer& value : values)
    given.push_back(value.contiguous().to_device(cpu_device()));
  return given;
}

std::vector<Buffer> to_give_up(const Results& values, MemRegion& region) {
  std::vector<Buffer> given;
  for (const HostBuffer& value : values) {
    const HostBuffer dense = value.contiguous();
    const auto bytes = static_cast<std::uint64_t>(dense.shape().bytes());
    given.push_back(Buffer::allocate(dense.shape(), region));
    if (bytes > 0) given.back().chunk().write(dense.bytes(), 0, bytes);
  }
  return given;
}

std::optional<Errc> poison_of(const Buffer& buffer) {
  try {
    buffer.wait();
    return std::nullopt;
  } catch (const Error& error) {
    return error.code();
  }
}

Untouched::Untouched(const std::vector<Buffer>& given) {
  for (const Buffer& buffer : given) {
    begins_.push_back(buffer.has_data() ? buffer.data() : MemPtr());
    values_.push_back(buffer.has_data() ? on_host({buffer})[0] : HostBuffer());
  }
}

void Untouched::check(const std::string& way, const std::vector<Buffer>& given,
                      const std::set<std::size_t>& states, std::optional<Errc> error) const {
  if (given.size() != begins_.size()) throw Failure{way + ": arguments were lost"};
  for (std::size_t i = 0; i < given.size(); ++i) {
    const MemPtr begin = given[i].has_data() ? given[i].data() : MemPtr();
    if (!(begin == begins_[i])) throw Failure{fmt::format("{}: input {} is lost", way, i)};
    if (begin.is_null() || states.contains(i)) continue;
    if (error && poison_of(given[i]) == error) continue;
    compare_bits(fmt::format("{}: input {}", way, i), on_host({given[i]}), {values_[i]});
  }
}

Results on_host(const std::vector<Buffer>& outputs) {
  Results results;
  for (const Buffer& output : outputs) {
    const HostBuffer shared = output.to_host().contiguous();
    HostBuffer copy = HostBuffer::zeros(shared.shape());
    if (copy.shape().bytes() > 0) {
      std::memcpy(copy.view().data, shared.bytes(), static_cast<std::size_t>(copy.shape().bytes()));
    }
    results.push_back(std::move(copy));
  }
  return results;
}

std::vector<Shape> shapes_of(const Results& values) {
  std::vector<Shape> shapes;
  for (const HostBuffer& value : values) shapes.push_back(value.shape());
  return shapes;
}

Session reloaded(const Session& session, const std::vector<BackendPtr>& backends,
                 const Session::SaveOptions& options) {
  const struct File {
    std::filesystem::path path = std::filesystem::temp_directory_path() /
                                 fmt::format("tenon_random_program_{}.snapshot", getpid());
    ~File() { std::filesystem::remove(path); }
  } file;
  session.save(file.path, options);
  return Session::load(file.path, backends);
}

Results run_reference(const Program& program, const std::shared_ptr<const WeightSet>& weights,
                      const Results& inputs) {
  Session session(program, {.backends = {make_reference_backend({})}});
  session.set_merge(false);  // loops written out: no constants differ by iteration
  session.bind(weights);
  return on_host(session.forward(on_cpu(inputs)));
}

double sensitivity(const Program& program, const std::map<std::string, HostBuffer>& weights,
                   const Results& inputs, const Results& wanted, std::uint64_t seed) {
  constexpr double any = 1e9;
  std::mt19937_64 engine(seed);
  double most = 0;
  for (int round = 0; round < 3; ++round) {
    std::map<std::string, HostBuffer> moved_weights;
    for (const auto& [name, value] : weights) moved_weights[name] = nudged(value, engine);
    Results moved;
    for (const HostBuffer& value : inputs) moved.push_back(nudged(value, engine));
    const Results results =
        run_reference(program, std::make_shared<const WeightSet>(on_cpu(moved_weights)), moved);
    most = std::max(most, any * largest_error("moved by roundings", results, wanted, any));
  }
  return most;
}

std::vector<Results> at_once(std::size_t count, const std::function<Results(std::size_t)>& run) {
  std::vector<Results> results(count);
  std::vector<std::string> errors(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        results[i] = run(i);
      } catch (const Failure& failure) {
        errors[i] = failure.what;
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) throw Failure{"runs at once: " + error};
  }
  return results;
}

}  // namespace tenon::testing
