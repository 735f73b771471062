// Generated kernels by NVRTC. They include the headers of kernels/, which it is given as texts, with
// stand-ins for those of the standard library.
#include "driver/kernel_compiler.hpp"
#include "driver/kernel_image.hpp"
#include "driver/vendor_library.hpp"

#include <tenon/dtype.hpp>
#include <tenon/error.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nvrtc.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::cuda {
namespace {

// clang-format off
#define TENON_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion) X(nvrtcGetErrorString) X(nvrtcGetNumSupportedArchs) X(nvrtcGetSupportedArchs) \
  X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcCompileProgram) X(nvrtcGetProgramLogSize) \
  X(nvrtcGetProgramLog) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetPTXSize) X(nvrtcGetPTX)
// clang-format on
TENON_VENDOR_LIBRARY(NvrtcLibrary, TENON_NVRTC_FUNCTIONS);

constexpr const char* integer_types =
    "#pragma once\n"
    "namespace std {\n"
    "using int8_t = signed char;\nusing uint8_t = unsigned char;\n"
    "using int16_t = short;\nusing uint16_t = unsigned short;\n"
    "using int32_t = int;\nusing uint32_t = unsigned;\n"
    "using int64_t = long long;\nusing uint64_t = unsigned long long;\n"
    "using size_t = decltype(sizeof 0);\n"
    "}\n";

/// The types that kernels compute with.
std::string dtype_header() {
  std::string text = "#pragma once\nnamespace tenon {\nenum class DType : unsigned char {\n";
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16,
                            DType::u32, DType::f16, DType::bf16, DType::f32}) {
    text += fmt::format("  {} = {},\n", name(dtype), static_cast<int>(dtype));
  }
  return text + fmt::format("  boolean = {}\n}};\n}}\n", static_cast<int>(DType::boolean));
}

std::map<std::string, std::string> all_headers() {
  std::map<std::string, std::string> headers{{"cmath", "#pragma once\n"},
                                             {"cstddef", integer_types},
                                             {"cstdint", integer_types},
                                             {"tenon/dtype.hpp", dtype_header()}};
  for (const KernelHeader& header : kernel_headers()) {
    headers.emplace(header.name, header.text);
  }
  return headers;
}

class Nvrtc final : public KernelCompiler {
 public:
  Nvrtc(const NvrtcLibrary& library, std::string version, std::string target)
      : nvrtc_(library), headers_(all_headers()), target_(std::move(target)) {
    std::string text;
    for (const auto& [name, header] : headers_) {
      names_.push_back(name.c_str());
      texts_.push_back(header.c_str());
      text += header;
    }
    identity_ =
        fmt::format("nvrtc {} {} {:016x}", version, target_, XXH3_64bits(text.data(), text.size()));
  }

  std::string identity() const override { return identity_; }

  std::vector<std::byte> compile(const std::string& text) override {
    const Program program(nvrtc_, text, names_, texts_);
    // As nvcc compiles kernels/points.cu (CMakeLists.txt).
    const std::string architecture = "--gpu-architecture=" + target_;
    const char* const options[] = {architecture.c_str(), "--std=c++20", "--fmad=false"};
    const nvrtcResult result =
        nvrtc_.p_nvrtcCompileProgram(program.handle, static_cast<int>(std::size(options)), options);
    if (result != NVRTC_SUCCESS) {
      throw Error(Errc::internal, "nvrtc",
                  fmt::format("{}: {}", nvrtc_.p_nvrtcGetErrorString(result), log_of(program)));
    }
    return target_.starts_with("sm_")
               ? image_of(program, nvrtc_.p_nvrtcGetCUBINSize, nvrtc_.p_nvrtcGetCUBIN)
               : image_of(program, nvrtc_.p_nvrtcGetPTXSize, nvrtc_.p_nvrtcGetPTX);
  }

 private:
  struct Program {
    Program(const NvrtcLibrary& library, const std::string& text,
            const std::vector<const char*>& names, const std::vector<const char*>& texts)
        : nvrtc(library) {
      check(nvrtc,
            nvrtc.p_nvrtcCreateProgram(&handle, text.c_str(), "fused.cu",
                                       static_cast<int>(texts.size()), texts.data(), names.data()));
    }
    ~Program() { nvrtc.p_nvrtcDestroyProgram(&handle); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    const NvrtcLibrary& nvrtc;
    nvrtcProgram handle = nullptr;
  };

  static void check(const NvrtcLibrary& nvrtc, nvrtcResult result) {
    if (result == NVRTC_SUCCESS) return;
    throw Error(Errc::internal, "nvrtc", nvrtc.p_nvrtcGetErrorString(result));
  }

  template <class Size, class Get>
  std::vector<std::byte> image_of(const Program& program, Size&& size, Get&& get) const {
    std::size_t bytes = 0;
    check(nvrtc_, size(program.handle, &bytes));
    std::vector<std::byte> image(bytes);
    check(nvrtc_, get(program.handle, reinterpret_cast<char*>(image.data())));
    return image;
  }
  std::string log_of(const Program& program) const {
    const std::vector<std::byte> log =
        image_of(program, nvrtc_.p_nvrtcGetProgramLogSize, nvrtc_.p_nvrtcGetProgramLog);
    return {reinterpret_cast<const char*>(log.data()), log.empty() ? 0 : log.size() - 1};
  }

  const NvrtcLibrary& nvrtc_;
  std::map<std::string, std::string> headers_;
  std::vector<const char*> names_, texts_;
  std::string target_, identity_;
};

}  // namespace

FoundCompiler open_nvrtc(int capability) {
  static const NvrtcLibrary library("libnvrtc.so.13");
  if (const std::string& missing = library.found.missing(); !missing.empty()) {
    return {nullptr, "no NVRTC: " + missing};
  }
  int major = 0, minor = 0, count = 0;
  library.p_nvrtcVersion(&major, &minor);
  library.p_nvrtcGetNumSupportedArchs(&count);
  std::vector<int> known(static_cast<std::size_t>(count));
  library.p_nvrtcGetSupportedArchs(known.data());
  // What it does not know gets the newest intermediate form that is older.
  std::erase_if(known, [&](int architecture) { return architecture > capability; });
  if (known.empty()) {
    return {nullptr, fmt::format("no NVRTC: {}.{} knows no devices of capability {}", major, minor,
                                 capability)};
  }
  const int best = *std::ranges::max_element(known);
  std::string target = fmt::format("{}_{}", best == capability ? "sm" : "compute", best);
  const std::string version = fmt::format("{}.{}", major, minor);
  std::string about = fmt::format("NVRTC {} for {}", version, target);
  return {std::make_unique<Nvrtc>(library, version, std::move(target)), std::move(about)};
}

}  // namespace tenon::cuda
