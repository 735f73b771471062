#include "options.hpp"

#include "quantity.hpp"

#include <tenon/error.hpp>
#include <tenon/npu/isa/memory_map.hpp>

#include <string_view>

#include <fmt/format.h>

namespace tenon::npu::sim {
namespace {

/// One key=value of a URL and the setters it may be read with; each returns whether it was.
class Value {
 public:
  Value(const DeviceUrl& url, std::string_view key, std::string_view text)
      : url_(url), key_(key), text_(text) {}

  [[noreturn]] void refuse(std::string_view wanted) const {
    throw Error(Errc::out_of_range, url_.text,
                fmt::format("{} = '{}': wanted is {}", key_, text_, wanted));
  }

  std::uint64_t number(std::uint64_t lo, std::uint64_t hi) const {
    std::string_view rest = text_;
    std::uint64_t value = 0;
    if (!take_number(rest, value) || !rest.empty() || value < lo || value > hi) {
      refuse(fmt::format("a number from {} to {}", lo, hi));
    }
    return value;
  }
  bool flag() const { return number(0, 1) == 1; }

  std::uint64_t bytes(std::uint64_t lo, std::uint64_t hi, std::uint64_t multiple) const {
    std::uint64_t value = 0;
    if (!parse_bytes(text_, value) || value < lo || value > hi || value % multiple != 0) {
      refuse(fmt::format("a size with its unit, from {} to {}, a multiple of {}", format_bytes(lo),
                         format_bytes(hi), format_bytes(multiple)));
    }
    return value;
  }

  /// Index of the text among `words`.
  std::size_t word(std::initializer_list<std::string_view> words) const {
    std::size_t index = 0;
    std::string all;
    for (const std::string_view known : words) {
      if (text_ == known) return index;
      ++index;
      all += (all.empty() ? "" : " or ");
      all += known;
    }
    refuse(all);
  }

  std::string file() const {
    if (text_.empty()) refuse("the name of a file");
    return std::string(text_);
  }
  std::string_view text() const noexcept { return text_; }
  std::string_view key() const noexcept { return key_; }

 private:
  const DeviceUrl& url_;
  std::string_view key_;
  std::string_view text_;
};

constexpr std::uint64_t max_array = 1024;

void set_array(Options& options, const Value& value) {
  std::string_view text = value.text();
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  bool good = take_number(text, rows) && text.starts_with('x');
  if (good) text.remove_prefix(1);
  good = good && take_number(text, cols) && text.empty();
  if (!good || rows < 1 || rows > max_array || cols < 1 || cols > max_array) {
    value.refuse("rows x columns such as 32x32, each 1 to 1024");
  }
  options.array_rows = static_cast<std::uint32_t>(rows);
  options.array_cols = static_cast<std::uint32_t>(cols);
}

void set_faults(Options& options, const Value& value) {
  std::string why;
  const auto plans = parse_faults(value.text(), why);
  if (!plans) value.refuse("kind@nth[,layer] joined by '+'; " + why);
  options.faults = *plans;
}

constexpr std::uint64_t kib = 1 << 10;
constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t gib = 1 << 30;
constexpr std::uint64_t most_ddr = isa::ocm_base - isa::etm_base;  // OCM begins behind it
constexpr std::uint64_t mega = 1'000'000;
constexpr std::uint64_t longest_reset_ns = 60'000 * mega;
constexpr std::uint64_t longest_patience_ns = 600'000 * mega;

struct Key {
  std::string_view name;
  void (*set)(Options&, const Value&);
};

constexpr Key keys[] = {
    {"mac", set_array},
    {"ocm", [](Options& o, const Value& v) { o.ocm_bytes = v.bytes(4 * kib, 32 * mib, 64); }},
    {"acc", [](Options& o, const Value& v) { o.acc_bytes = v.bytes(4 * kib, 2 * mib, 128); }},
    {"ddr", [](Options& o, const Value& v) { o.ddr_bytes = v.bytes(mib, most_ddr, mib); }},
    {"dma", [](Options& o, const Value& v) { o.xchg_bytes = v.bytes(64 * kib, gib, 4 * kib); }},
    {"freq",
     [](Options& o, const Value& v) {
       if (!parse_frequency(v.text(), o.freq_hz) || o.freq_hz < mega || o.freq_hz > 4000 * mega ||
           o.freq_hz % mega != 0) {
         v.refuse("a frequency with its unit, 1MHz to 4GHz, whole MHz");
       }
     }},
    {"bw",
     [](Options& o, const Value& v) {
       if (!parse_bandwidth(v.text(), o.ddr_bps) || o.ddr_bps < mega ||
           o.ddr_bps > 4'000'000 * mega || o.ddr_bps % mega != 0) {
         v.refuse("a bandwidth with its unit, 1MB/s to 4000GB/s, whole MB/s");
       }
     }},
    {"lat", [](Options& o,
               const Value& v) { o.ddr_latency = static_cast<std::uint32_t>(v.number(0, 65535)); }},
    {"wbuf",
     [](Options& o, const Value& v) { o.wbuf = static_cast<std::uint32_t>(v.number(1, 2)); }},
    {"flow", [](Options& o,
                const Value& v) { o.flow = static_cast<isa::Flow>(v.word({"ws", "os", "is"})); }},
    {"queue", [](Options& o,
                 const Value& v) { o.queue_depth = static_cast<std::uint32_t>(v.number(1, 255)); }},
    {"coherent", [](Options& o, const Value& v) { o.coherent = v.flag(); }},
    {"sched",
     [](Options& o, const Value& v) { o.random_schedule = v.word({"time", "random"}) == 1; }},
    {"seed", [](Options& o,
                const Value& v) { o.seed = static_cast<std::uint32_t>(v.number(0, 0xFFFFFFFF)); }},
    {"pace", [](Options& o, const Value& v) { o.paced = v.word({"none", "real"}) == 1; }},
    {"reset",
     [](Options& o, const Value& v) {
       if (!parse_duration(v.text(), o.reset_ns) || o.reset_ns > longest_reset_ns) {
         v.refuse("a time with its unit, 0s to 60s");
       }
     }},
    {"hostdma", [](Options& o, const Value& v) { o.host_dma = v.flag(); }},
    {"patience",
     [](Options& o, const Value& v) {
       if (!parse_duration(v.text(), o.patience_ns) || o.patience_ns < mega ||
           o.patience_ns > longest_patience_ns) {
         v.refuse("a time with its unit, 1ms to 600s");
       }
     }},
    {"strict", [](Options& o, const Value& v) { o.strict = v.flag(); }},
    {"profile", [](Options& o, const Value& v) { o.m8 = v.word({"full", "m8"}) == 1; }},
    {"fault", set_faults},
    {"trace", [](Options& o, const Value& v) { o.trace = v.file(); }},
    {"vcd", [](Options& o, const Value& v) { o.vcd = v.file(); }},
    {"chrome", [](Options& o, const Value& v) { o.chrome = v.file(); }},
    {"listing", [](Options& o, const Value& v) { o.listing = v.file(); }},
};

}  // namespace

Options Options::parse(const DeviceUrl& url) {
  Options options;
  for (const auto& [key, text] : url.params) {
    const Key* found = nullptr;
    for (const Key& known : keys) {
      if (known.name == key) found = &known;
    }
    if (found == nullptr) {
      std::string all;
      for (const Key& known : keys) all += fmt::format("{}{}", all.empty() ? "" : ", ", known.name);
      throw Error(Errc::bad_key, url.text,
                  fmt::format("the simulated NPU knows no '{}'; it knows {}", key, all));
    }
    found->set(options, Value(url, key, text));
  }
  return options;
}

std::map<std::string, std::string> Options::params() const {
  const auto flag = [](bool value) { return std::string(value ? "1" : "0"); };
  return {
      {"mac", fmt::format("{}x{}", array_rows, array_cols)},
      {"ocm", format_bytes(ocm_bytes)},
      {"acc", format_bytes(acc_bytes)},
      {"ddr", format_bytes(ddr_bytes)},
      {"dma", format_bytes(xchg_bytes)},
      {"freq", format_frequency(freq_hz)},
      {"bw", format_bandwidth(ddr_bps)},
      {"lat", std::to_string(ddr_latency)},
      {"wbuf", std::to_string(wbuf)},
      {"flow", std::string(isa::name(flow))},
      {"queue", std::to_string(queue_depth)},
      {"coherent", flag(coherent)},
      {"sched", random_schedule ? "random" : "time"},
      {"seed", std::to_string(seed)},
      {"pace", paced ? "real" : "none"},
      {"reset", format_duration(reset_ns)},
      {"hostdma", flag(host_dma)},
      {"patience", format_duration(patience_ns)},
      {"strict", flag(strict)},
      {"profile", m8 ? "m8" : "full"},
      {"fault", format_faults(faults)},
      {"trace", trace},
      {"vcd", vcd},
      {"chrome", chrome},
      {"listing", listing},
  };
}

isa::Caps Options::caps() const {
  isa::Caps caps;
  caps.array_rows = array_rows;
  caps.array_cols = array_cols;
  caps.ocm_bytes = static_cast<std::uint32_t>(ocm_bytes);
  caps.acc_bytes = static_cast<std::uint32_t>(acc_bytes);
  caps.flow = flow;
  caps.wbuf = wbuf;
  caps.coherent = coherent;
  caps.strict = strict;
  caps.m8 = m8;
  caps.host_dma = host_dma;
  caps.queue_depth = queue_depth;
  caps.freq_khz = static_cast<std::uint32_t>(freq_hz / 1000);
  caps.ddr_kbps = static_cast<std::uint32_t>(ddr_bps / 1000);
  caps.ddr_latency = ddr_latency;
  caps.ddr_mib = static_cast<std::uint32_t>(ddr_bytes / mib);
  return caps;
}

}  // namespace tenon::npu::sim
