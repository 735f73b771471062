// What the training of a classifier of digits is made of: images, progress, a curve of the loss.
#pragma once

#include <tenon/tenon.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace tenon;  // NOLINT(google-global-names-in-headers): a header of examples

struct Enlarge {
  std::int64_t side;
  TENON_FIELDS()
  Tensor forward(Tensor images) const {
    return resize(images, {.sizes = {side, side}, .mode = "linear"});
  }
};

struct Digits {
  HostBuffer images;  ///< f32 [n, 1, side, side], 0 (paper) to 1 (ink)
  HostBuffer labels;  ///< i32 [n]

  /// A file of examples/data, whose images are 8 by 8, enlarged to `side`.
  static Digits read(const std::string& path, std::int64_t side, const DevicePtr& device) {
    const io::File file = io::open(path);
    const HostBuffer data = file.at("images").data(), labels = file.at("labels").data();
    HostBuffer images = data.to(f32).contiguous().reshape({data.shape()[0], 1, 8, 8});
    if (data.shape().dtype() == u8) {
      for (float& pixel : images.mutable_values<float>()) pixel /= 16;
    }
    if (side != 8) {
      const Enlarge enlarge{side};
      auto run = compile<&Enlarge::forward>(enlarge, {images.shape()}, device).bind(enlarge);
      images = run(images.to_device(device)).to_host();
    }
    return {images, labels.to(i32)};
  }

  std::int64_t count() const { return images.shape()[0]; }

  /// These images, each moved by up to `reach` pixels: people do not write on a grid.
  HostBuffer moved(std::span<const std::size_t> chosen, int reach, std::mt19937_64& random) const {
    const auto side = static_cast<int>(images.shape()[2]), ways = 2 * reach + 1;
    const auto pixels = static_cast<std::size_t>(side * side);
    HostBuffer result =
        HostBuffer::zeros(Shape({static_cast<std::int64_t>(chosen.size()), 1, side, side}, f32));
    const auto from = images.values<float>();
    const auto to = result.mutable_values<float>();
    const auto shift = [&] {
      return static_cast<int>(random() % static_cast<std::uint64_t>(ways)) - reach;
    };
    for (std::size_t n = 0; n < chosen.size(); ++n) {
      const int dy = shift(), dx = shift();
      for (int y = std::max(0, -dy); y < std::min(side, side - dy); ++y) {
        for (int x = std::max(0, -dx); x < std::min(side, side - dx); ++x) {
          to[n * pixels + static_cast<std::size_t>(y * side + x)] =
              from[chosen[n] * pixels + static_cast<std::size_t>((y + dy) * side + x + dx)];
        }
      }
    }
    return result;
  }

  HostBuffer labels_of(std::span<const std::size_t> chosen) const {
    HostBuffer result =
        HostBuffer::uninitialized(Shape({static_cast<std::int64_t>(chosen.size())}, i32));
    const auto to = result.mutable_values<std::int32_t>();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      to[i] = labels.values<std::int32_t>()[chosen[i]];
    }
    return result;
  }
};

/// 0 to count - 1 in an order that follows from `random`.
inline std::vector<std::size_t> shuffled(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::size_t> order(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  return order;
}

/// A line chart of the losses, one point per epoch, on a logarithmic scale.
inline void write_svg(const std::string& path, const std::vector<double>& losses) {
  std::ofstream svg(path);
  svg << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 640 360' font-family='sans-serif' "
         "font-size='12'>\n<rect width='640' height='360' fill='white'/>\n";
  const auto [least, most] = std::ranges::minmax(losses);
  const double low = std::log10(least), high = std::log10(most) + 1e-9;
  const auto y_of = [&](double loss) {
    return 320 - 290 * (std::log10(loss) - low) / (high - low);
  };
  svg << "<polyline fill='none' stroke='#1f77b4' stroke-width='2' points='";
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double x = 60 + 560 * static_cast<double>(i) /
                              static_cast<double>(std::max<std::size_t>(losses.size() - 1, 1));
    svg << x << ',' << y_of(losses[i]) << ' ';
  }
  svg << "'/>\n";
  for (const double loss : {most, least}) {
    svg << "<text x='8' y='" << y_of(loss) + 4 << "'>" << loss << "</text>\n";
  }
  svg << "<text x='300' y='350'>epoch, 0 to " << losses.size() - 1
      << "</text>\n<text x='60' y='18'>training loss (log scale)</text>\n</svg>\n";
  if (!svg.flush()) throw Error(Errc::io_error, path, "cannot write the loss curve");
}

/// "[#####.....] epoch 15 of 30, loss 0.0321", on one line of a terminal.
inline void show_progress(std::int64_t epoch, std::int64_t epochs, double loss) {
  const auto done = static_cast<std::size_t>(30 * epoch / epochs);
  std::fprintf(stderr, "\r[%s%s] epoch %lld of %lld, loss %.5f", std::string(done, '#').c_str(),
               std::string(30 - done, '.').c_str(), static_cast<long long>(epoch),
               static_cast<long long>(epochs), loss);
}
