#include "picture.hpp"

#include "tool.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#ifdef TENON_WITH_PNG
#include <png.h>
#endif
#ifdef TENON_WITH_JPEG
#include <jpeglib.h>  // needs <cstdio> before it
#endif

namespace tenon::tool {
namespace {

constexpr std::int64_t max_side = 1 << 15;
constexpr std::int64_t max_file_pixels = 1 << 28;  // a small file may claim as many as it likes
constexpr int max_scans = 100;  // of a progressive JPEG, each over all pixels; usual are about 10

/// The bytes of a file and what is said of them.
class Picture {
 public:
  Picture(std::string path, std::string bytes, std::int64_t max_pixels)
      : path_(std::move(path)), bytes_(std::move(bytes)), max_pixels_(max_pixels) {}

  HostBuffer pixels() const {
    const std::string_view bytes = bytes_;
    if (bytes.starts_with("P6")) return ppm();
    if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return png();
    if (bytes.starts_with("\xff\xd8\xff")) return jpeg();
    refuse(Errc::bad_magic, "is no picture of a known format: PPM (P6), PNG, JPEG");
  }

 private:
  [[noreturn]] void refuse(Errc code, const std::string& message) const {
    throw Error(code, path_, message);
  }

  void check_sizes(std::int64_t height, std::int64_t width) const {
    if (height < 1 || width < 1) refuse(Errc::corrupt, "has no pixels");
    if (std::max(height, width) > max_side || height * width > max_pixels_) {
      refuse(Errc::limit_exceeded,
             fmt::format("{} x {} pixels; there are at most {} on a side and {} in all", width,
                         height, max_side, max_pixels_));
    }
  }
  /// Room for a picture.
  HostBuffer blank(std::int64_t height, std::int64_t width) const {
    check_sizes(height, width);
    return HostBuffer::zeros(Shape({height, width, 3}, u8));
  }

  /// Netpbm's ppm(5): "P6", width, height and the greatest value, with comments between them, one blank,
  /// and the pixels.
  HostBuffer ppm() const {
    std::size_t at = 2;
    const auto is_blank = [&] {
      return std::string_view(" \t\r\n\v\f").find(bytes_[at]) != std::string_view::npos;
    };
    const auto number = [&] {
      while (at < bytes_.size() && (is_blank() || bytes_[at] == '#')) {
        at = bytes_[at] == '#' ? std::min(bytes_.find('\n', at), bytes_.size()) : at + 1;
      }
      std::int64_t value = 0;
      const char* const end = bytes_.data() + bytes_.size();
      const auto [rest, failure] = std::from_chars(bytes_.data() + at, end, value);
      if (failure != std::errc() || value < 0) refuse(Errc::corrupt, "a PPM without its sizes");
      at = static_cast<std::size_t>(rest - bytes_.data());
      return value;
    };
    const std::int64_t width = number(), height = number(), greatest = number();
    if (greatest != 255) {
      refuse(Errc::unsupported, fmt::format("a PPM with values up to {}, not 255", greatest));
    }
    if (at >= bytes_.size() || !is_blank()) refuse(Errc::corrupt, "a PPM without pixels");
    ++at;
    check_sizes(height, width);
    if (const auto wanted = static_cast<std::size_t>(3 * height * width);
        bytes_.size() - at < wanted) {
      refuse(Errc::corrupt,
             fmt::format("a PPM of {} bytes of pixels, wanted are {}", bytes_.size() - at, wanted));
    }
    HostBuffer made = blank(height, width);
    const auto to = made.mutable_values<std::uint8_t>();
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
    return made;
  }

#ifdef TENON_WITH_PNG
  struct Png {
    png_image image{};
    Png() { image.version = PNG_IMAGE_VERSION; }
    ~Png() { png_image_free(&image); }
    Png(const Png&) = delete;
    Png& operator=(const Png&) = delete;
  };

  HostBuffer png() const {
    Png png;
    const auto check = [&](int is_fine) {
      if (is_fine == 0) refuse(Errc::corrupt, fmt::format("libpng: {}", png.image.message));
    };
    check(png_image_begin_read_from_memory(&png.image, bytes_.data(), bytes_.size()));
    HostBuffer made = blank(png.image.height, png.image.width);
    // Alpha is left out behind the library: it would mix what is transparent with a background.
    png.image.format = PNG_FORMAT_RGBA;
    png.image.flags |=
        PNG_IMAGE_FLAG_16BIT_sRGB;  // libpng takes 16 bits without a gamma for linear
    std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(png.image));
    check(png_image_finish_read(&png.image, nullptr, pixels.data(), 0, nullptr));
    const auto to = made.mutable_values<std::uint8_t>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = pixels[i / 3 * 4 + i % 3];
    return made;
  }
#else
  HostBuffer png() const {
    refuse(Errc::unsupported, "a PNG, which this build does not read: it was made without libpng");
  }
#endif

#ifdef TENON_WITH_JPEG
  /// libjpeg's errors come back to where its caller was.
  struct JpegErrors {
    jpeg_error_mgr manager{};
    std::jmp_buf caller{};
    std::array<char, JMSG_LENGTH_MAX> message{};
    bool has_many_scans = false;
  };

  struct Jpeg {
    jpeg_decompress_struct state{};
    jpeg_progress_mgr progress{};
    JpegErrors errors;
    ~Jpeg() { jpeg_destroy_decompress(&state); }
  };

  /// Reads the header, or all lines. Nothing here has a destructor: errors leave it by longjmp.
  static bool jpeg_step(Jpeg& jpeg, std::string_view bytes, std::uint8_t* to) {
    if (setjmp(jpeg.errors.caller) != 0) return false;
    if (to == nullptr) {
      jpeg_create_decompress(&jpeg.state);
      jpeg_mem_src(&jpeg.state, reinterpret_cast<const unsigned char*>(bytes.data()),
                   static_cast<unsigned long>(bytes.size()));
      jpeg.state.progress = &jpeg.progress;
      jpeg_read_header(&jpeg.state, TRUE);
      return true;
    }
    jpeg.state.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg.state);
    const std::size_t line = std::size_t{3} * jpeg.state.output_width;
    while (jpeg.state.output_scanline < jpeg.state.output_height) {
      JSAMPROW row = to + line * jpeg.state.output_scanline;
      jpeg_read_scanlines(&jpeg.state, &row, 1);
    }
    jpeg_finish_decompress(&jpeg.state);
    return true;
  }

  HostBuffer jpeg() const {
    Jpeg jpeg;
    jpeg.state.err = jpeg_std_error(&jpeg.errors.manager);
    jpeg.state.client_data = &jpeg.errors;
    jpeg.errors.manager.error_exit = [](j_common_ptr state) {
      auto& errors = *static_cast<JpegErrors*>(state->client_data);
      errors.manager.format_message(state, errors.message.data());
      std::longjmp(errors.caller, 1);
    };
    jpeg.errors.manager.output_message = [](j_common_ptr) {};  // of warnings
    jpeg.progress.progress_monitor = [](j_common_ptr state) {
      if (reinterpret_cast<j_decompress_ptr>(state)->input_scan_number <= max_scans) return;
      auto& errors = *static_cast<JpegErrors*>(state->client_data);
      errors.has_many_scans = true;
      std::longjmp(errors.caller, 1);
    };
    const auto step = [&](std::uint8_t* to) {
      if (jpeg_step(jpeg, bytes_, to)) return;
      if (jpeg.errors.has_many_scans) {
        refuse(Errc::limit_exceeded, fmt::format("a JPEG of more than {} scans", max_scans));
      }
      refuse(Errc::corrupt, fmt::format("libjpeg: {}", jpeg.errors.message.data()));
    };
    step(nullptr);
    const J_COLOR_SPACE colours = jpeg.state.jpeg_color_space;
    if (colours == JCS_CMYK || colours == JCS_YCCK) {
      refuse(Errc::unsupported, "a JPEG with colours for printing (CMYK)");
    }
    HostBuffer made = blank(jpeg.state.image_height, jpeg.state.image_width);
    step(made.mutable_values<std::uint8_t>().data());
    if (jpeg.errors.manager.num_warnings > 0)
      refuse(Errc::corrupt, "a JPEG that is cut or damaged");
    return made;
  }
#else
  HostBuffer jpeg() const {
    refuse(Errc::unsupported,
           "a JPEG, which this build does not read: it was made without libjpeg");
  }
#endif

  std::string path_;
  std::string bytes_;
  std::int64_t max_pixels_;
};

}  // namespace

HostBuffer read_picture(const std::filesystem::path& path) {
  return decode_picture(read_text(path.string()), path.string(), max_file_pixels);
}

HostBuffer decode_picture(std::string bytes, std::string name, std::int64_t max_pixels) {
  return Picture(std::move(name), std::move(bytes), max_pixels).pixels();
}

}  // namespace tenon::tool
