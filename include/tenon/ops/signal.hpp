#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>

namespace tenon {

// Windows, spectra over time and mel scales; composed.

/// 0.5 - 0.5 cos(2 pi i / n), n being `size` where `periodic` (for spectra), else size - 1. Recorded
/// in the graph of the active Graph::Recording, as are the functions below that take no tensor.
/// Errc::bad_argument for a size below 1 or a dtype that is not floating.
Tensor hann_window(std::int64_t size, bool periodic = true, DType dtype = f32,
                   const std::source_location& where = std::source_location::current());
/// 0.54 - 0.46 cos(2 pi i / n).
Tensor hamming_window(std::int64_t size, bool periodic = true, DType dtype = f32,
                      const std::source_location& where = std::source_location::current());

/// Transforms of windowed frames: frame f is x[f hop .. f hop + n), n being the window's size,
/// times the window. With `center`, x is reflected by n / 2 on both sides first, so that frame f is
/// centred at f hop, as torch.stft does by default.
///
/// Inputs  x: [.., time], f32 or f64; window: [n], of x's dtype
/// Result  [.., frames, n / 2 + 1, 2], as of `rfft`, or c64 without the axis of 2; no tags; as many
///         frames as fit
/// Errors  bad_argument  an unknown size; hop below 1; x shorter than a frame or, with `center`,
///                       not longer than n / 2
Tensor stft(const Tensor& x, const Tensor& window, std::int64_t hop, bool center = true,
            const std::source_location& where = std::source_location::current());
Tensor stft(const Tensor& x, const Tensor& window, std::int64_t hop, bool center, DType dtype,
            const std::source_location& where = std::source_location::current());

/// Slaney's scale is linear below 1 kHz (librosa's default, Whisper's); HTK's is
/// 2595 log10(1 + f / 700). `mel_filters` of Slaney's have the area of 1 (norm="slaney"), those of
/// HTK the height of 1.
enum class MelScale : std::uint8_t { slaney, htk };

/// [mels, size / 2 + 1]: triangles over the bins of a transform of `size` samples at `rate` Hz,
/// between `low` and `high` Hz (0: rate / 2). Computed in f64, f32.
/// Errc::bad_argument for mels or size below 1, or not 0 <= low < high.
Tensor mel_filters(std::int64_t mels, std::int64_t size, double rate, double low = 0,
                   double high = 0, MelScale scale = MelScale::slaney,
                   const std::source_location& where = std::source_location::current());

/// Whisper's features of audio of 16 kHz (Radford et al., arXiv:2212.04356): stft with a Hann
/// window of 400 and steps of 160 without the last frame, squared magnitudes on Slaney's mel scale,
/// log10 of at least 1e-10, at most 8 below the largest, (y + 4) / 4.
///
/// Input   x: [.., time], f32
/// Result  [.., mels, time / 160]; the largest number is that of each piece of audio
Tensor log_mel_spectrogram(const Tensor& x, std::int64_t mels = 80,
                           const std::source_location& where = std::source_location::current());

}  // namespace tenon
