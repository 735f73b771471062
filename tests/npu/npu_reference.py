"""An integer model of the NPU's instructions, written from docs/npu-isa.md alone.

Field positions are read from the tables of that page, what instructions mean from its text. There is no
time and there are no engines: programs whose tokens are given before they are taken may be run
in the order of their instructions, and that is what this does.
"""

import re
import struct
import sys

import numpy as np

OCM = 7
LANES = 32


class Fields:
    """Decodes words with the tables of the page."""

    def __init__(self, page):
        self.tables = {}
        for name, body in re.findall(r"<!-- table: (\w+) -->\n(.*?)<!-- end -->", page, re.S):
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")]
                    for line in body.strip().split("\n")[2:]]
            self.tables[name] = rows
        self.opcodes = {int(row[0], 16): row[1] for row in self.tables["opcodes"]}
        self.flags = {row[1].strip("`"): int(row[0]) for row in self.tables["Flag"]}
        self.layout = {}
        for name in self.opcodes.values():
            self.layout[name] = []
            for bits, field, kind, _ in self.tables.get(name, []):
                low, high = (int(part) for part in bits.split("-"))
                self.layout[name].append((field.strip("`"), low, high - low + 1, kind))

    def decode(self, word):
        name = self.opcodes[word & 0xFF]
        flags = word >> 12 & 15
        values = {flag: bool(flags >> bit & 1) for flag, bit in self.flags.items()}
        for field, low, width, kind in self.layout[name]:
            raw = word >> low & ((1 << width) - 1)
            if kind == "n":
                raw += 1
            elif kind == "s" and raw >> (width - 1):
                raw -= 1 << width
            elif kind == "f":
                raw = np.uint32(raw).view(np.float32)
            values[field] = raw
        return name, type("Instruction", (), values)


def shift_round(value, s):
    """rs(v, s) on arrays of int64; s a number or an array."""
    s = np.asarray(s, dtype=np.int64)
    half = np.where(s > 0, np.left_shift(np.int64(1), np.maximum(s - 1, 0)), 0)
    return np.right_shift(value + half, s)


def wrap32(value):
    return value.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)


class Machine:
    def __init__(self, segments, ocm_bytes, acc_bytes):
        self.segments = segments  # numpy uint8 arrays by number
        self.ocm = np.full(ocm_bytes, 0xCD, dtype=np.uint8)
        self.acc = np.full((acc_bytes // 128, LANES), 0x5A5A5A5A, dtype=np.int32)

    def signed(self, addresses):
        return self.ocm[addresses].view(np.int8).astype(np.int64)

    # ---- LD and ST ------------------------------------------------------------------------------

    def load(self, i):
        source = self.segments[i.segment]
        width = i.pad_left + i.row_bytes + i.pad_right
        for t in range(i.pad_top + i.rows + i.pad_bottom):
            row = np.zeros(width, dtype=np.uint8)
            r = t - i.pad_top
            if 0 <= r < i.rows:
                begin = i.offset + r * i.ddr_stride
                row[i.pad_left:i.pad_left + i.row_bytes] = source[begin:begin + i.row_bytes]
            begin = i.ocm_addr + t * i.ocm_stride
            self.ocm[begin:begin + width] = row

    def loadp(self, i):
        data = self.segments[i.segment][i.offset:i.offset + 8 * i.count]
        self.ocm[32 * i.ocm_line:32 * i.ocm_line + 8 * i.count] = data

    def store(self, i):
        for r in range(i.rows):
            begin = i.ocm_addr + r * i.ocm_stride
            to = i.offset + r * i.ddr_stride
            self.segments[i.segment][to:to + i.row_bytes] = self.ocm[begin:begin + i.row_bytes]

    def convert(self, i):
        real = i.mode in (0, 1)
        to_blocked = i.mode in (0, 2)
        size = 4 if real else 1
        c = 1 << i.log2c
        blocks = -(-i.channels // c)
        plain = self.ocm if i.plain_place == OCM else self.segments[i.plain_place]
        blocked = self.ocm if i.blocked_place == OCM else self.segments[i.blocked_place]
        p = np.arange(i.pixels)[:, None]
        ch = np.arange(i.channels)[None, :]
        plain_at = i.plain_offset + size * (p * i.pixel_stride + ch * i.channel_stride)
        blocked_at = i.blocked_offset + c * ((ch // c) * i.block_stride + p) + ch % c
        factor = i.scale
        if i.per_channel:
            begin = 32 * i.scale_line
            factor = self.ocm[begin:begin + 4 * i.channels].view(np.float32)[None, :]
        byte = np.arange(4)
        with np.errstate(all="ignore"):
            if i.mode == 0:
                values = plain[plain_at[..., None] + byte].copy().view(np.float32)[..., 0]
                product = (values * factor).astype(np.float32)
                whole = np.clip(np.rint(product), -128, 127)
                result = np.where(np.isnan(product), 0, whole).astype(np.int8).view(np.uint8)
            elif i.mode == 1:
                values = blocked[blocked_at].view(np.int8).astype(np.float32)
                result = np.ascontiguousarray((values * factor).astype(np.float32))
                plain[plain_at[..., None] + byte] = result[..., None].view(np.uint8)
                return
            elif i.mode == 2:
                result = plain[plain_at]
            else:
                plain[plain_at] = blocked[blocked_at]
                return
        assert to_blocked
        every = np.arange(blocks * c)[None, :]
        blocked[i.blocked_offset + c * ((every // c) * i.block_stride + p) + every % c] = 0
        blocked[blocked_at] = result

    # ---- EX: sums -------------------------------------------------------------------------------

    def add_sums(self, i, sums, acc_row, block_stride):
        """sums: int64, rows x columns, into blocks of 32 columns of ACC."""
        rows, columns = sums.shape
        for first in range(0, columns, LANES):
            used = min(LANES, columns - first)
            row = acc_row + first // LANES * block_stride
            old = self.acc[row:row + rows, :used].astype(np.int64) if i.accumulate else 0
            new = np.zeros((rows, LANES), dtype=np.int32)
            new[:, :used] = wrap32(old + sums[:, first:first + used])
            self.acc[row:row + rows] = new

    def gemm(self, i):
        c = 1 << i.a_log2c
        row = np.arange(i.m)[:, None]
        l = np.arange(i.k)
        a = self.signed(32 * i.a_line + c * ((l // c) * i.a_block_stride + row * i.a_row_stride) + l % c)
        l = l[:, None]
        j = np.arange(i.n)[None, :]
        if i.transposed:
            at = 32 * (i.b_line + (l // 32) * i.b_block_stride + j * i.b_row_stride) + l % 32
        else:
            at = 32 * (i.b_line + (j // 32) * i.b_block_stride + l * i.b_row_stride) + j % 32
        self.add_sums(i, a @ self.signed(at), i.acc_row, i.acc_block_stride)

    def window_pixels(self, i, r, q, dilation_h=1, dilation_w=1):
        """For every output pixel: the input row and column of tap (r, q), and whether they are inside."""
        y = np.repeat(np.arange(i.out_h), i.out_w) * i.stride_h + r * dilation_h - i.pad_top
        x = np.tile(np.arange(i.out_w), i.out_h) * i.stride_w + q * dilation_w - i.pad_left
        inside = (y >= 0) & (y < i.in_h) & (x >= 0) & (x < i.in_w)
        return np.where(inside, y, 0), np.where(inside, x, 0), inside

    def conv(self, i):
        c = 1 << i.in_log2c
        channel = np.arange(i.in_channels)
        out = np.arange(i.out_channels)[None, :]
        sums = np.zeros((i.out_h * i.out_w, i.out_channels), dtype=np.int64)
        for r in range(i.kernel_h):
            for q in range(i.kernel_w):
                y, x, inside = self.window_pixels(i, r, q, i.dilation_h, i.dilation_w)
                pixel = (y * i.in_row_stride + x)[:, None]
                at = 32 * i.in_line + c * ((channel // c) * i.in_block_stride + pixel) + channel % c
                at = np.where(inside[:, None], at, 0)
                taken = np.where(inside[:, None], self.signed(at), 0)
                line = (((channel // c) * i.kernel_h + r) * i.kernel_w + q) * c + channel % c
                weights = 32 * (i.w_line + (out // 32) * i.w_block_stride + line[:, None]) + out % 32
                sums += taken @ self.signed(weights)
        self.add_sums(i, sums, i.acc_row, i.acc_block_stride)

    def depthwise(self, i):
        lane = np.arange(LANES)[None, :]
        for b in range(i.blocks):
            sums = np.zeros((i.out_h * i.out_w, LANES), dtype=np.int64)
            for r in range(i.kernel_h):
                for q in range(i.kernel_w):
                    y, x, inside = self.window_pixels(i, r, q, i.dilation_h, i.dilation_w)
                    line = i.in_line + b * i.in_block_stride + y * i.in_row_stride + x
                    line = np.where(inside, line, 0)[:, None]
                    taken = np.where(inside[:, None], self.signed(32 * line + lane), 0)
                    weight = i.w_line + (b * i.kernel_h + r) * i.kernel_w + q
                    sums += taken * self.signed(32 * weight + lane)
            self.add_sums(i, sums, i.acc_row + b * i.acc_block_stride, 0)

    # ---- EX: vectors ----------------------------------------------------------------------------

    def requant(self, i):
        pixels = i.h * i.w
        y, x = np.divmod(np.arange(pixels), i.w)
        for b in range(-(-i.channels // LANES)):
            used = min(LANES, i.channels - LANES * b)
            begin = 32 * i.param_line + 8 * LANES * b
            records = self.ocm[begin:begin + 8 * used].reshape(used, 8)
            bias = np.ascontiguousarray(records[:, 0:4]).view("<i4")[:, 0].astype(np.int64)
            m = np.ascontiguousarray(records[:, 4:6]).view("<u2")[:, 0].astype(np.int64)
            s = records[:, 6].astype(np.int64)
            row = i.acc_row + b * i.acc_block_stride
            acc = self.acc[row:row + pixels, :used].astype(np.int64)
            t = shift_round((acc + bias) * m, s)
            if i.leaky:
                t = np.where(t < 0, shift_round(t * i.neg_m, 15), t)
            result = np.zeros((pixels, LANES), dtype=np.int64)
            result[:, :used] = np.clip(t, i.lo, i.hi)
            line = i.out_line + b * i.out_block_stride + y * i.out_row_stride + x
            self.ocm[32 * line[:, None] + np.arange(LANES)] = result.astype(np.int8).view(np.uint8)

    def elementwise(self, i):
        lane = np.arange(LANES)
        for r in range(i.rows):
            for x in range(i.columns):
                a = self.signed(32 * (i.a_line + r * i.a_row_stride + x * i.a_step) + lane)
                b = None
                if i.function in (0, 1, 2):
                    b = self.signed(32 * (i.b_line + r * i.b_row_stride + x * i.b_step) + lane)
                if i.function == 0:
                    f = a * i.m1 + b * i.m2
                elif i.function == 1:
                    f = a * b * i.m1
                elif i.function == 2:
                    f = np.maximum(a * i.m1, b * i.m2)
                elif i.function == 3:
                    f = a * np.where(a < 0, i.m2, i.m1)
                else:
                    f = self.signed(32 * i.b_line + a + 128)
                result = np.clip(shift_round(f, i.s), i.lo, i.hi)
                result[i.lanes:] = 0
                to = 32 * (i.out_line + r * i.out_row_stride + x * i.out_step)
                self.ocm[to:to + LANES] = result.astype(np.int8).view(np.uint8)

    def pool(self, i):
        lane = np.arange(LANES)[None, :]
        for b in range(i.blocks):
            f = np.full((i.out_h * i.out_w, LANES), -128 if i.function == 0 else 0, dtype=np.int64)
            for r in range(i.kernel_h):
                for q in range(i.kernel_w):
                    y, x, inside = self.window_pixels(i, r, q)
                    line = i.in_line + b * i.in_block_stride + y * i.in_row_stride + x
                    line = np.where(inside, line, 0)[:, None]
                    e = self.signed(32 * line + lane)
                    if i.function == 0:
                        f = np.where(inside[:, None], np.maximum(f, e), f)
                    else:
                        f += np.where(inside[:, None], e, 0)
            result = np.clip(shift_round(f * i.m, i.s), i.lo, i.hi)
            y, x = np.divmod(np.arange(i.out_h * i.out_w), i.out_w)
            to = i.out_line + b * i.out_block_stride + y * i.out_row_stride + x
            self.ocm[32 * to[:, None] + lane] = result.astype(np.int8).view(np.uint8)


METHODS = {
    "Load": Machine.load, "LoadP": Machine.loadp, "Gemm": Machine.gemm, "Conv": Machine.conv,
    "Depthwise": Machine.depthwise, "Requant": Machine.requant, "Elementwise": Machine.elementwise,
    "Pool": Machine.pool, "Store": Machine.store, "Convert": Machine.convert,
}


def crc32c(data):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def run(page, program, segments, ocm_bytes, acc_bytes):
    """Runs a program's bytes; returns the machine. Raises where the page would refuse the program."""
    magic, _, count, body_crc = struct.unpack_from("<IIII", program)
    assert magic == 0x50504E54, "magic"
    assert struct.unpack_from("<I", program, 60)[0] == crc32c(program[:60]), "header's checksum"
    assert body_crc == crc32c(program[64:64 + 32 * count]), "body's checksum"
    fields = page if isinstance(page, Fields) else Fields(page)
    machine = Machine(segments, ocm_bytes, acc_bytes)
    seen = {}
    for index in range(count):
        word = int.from_bytes(program[64 + 32 * index:96 + 32 * index], "little")
        name, instruction = fields.decode(word)
        seen[name] = seen.get(name, 0) + 1
        if name == "Halt":
            assert index == count - 1, "a halt before the end"
        elif name in METHODS:
            METHODS[name](machine, instruction)
    machine.seen = seen
    return machine


if __name__ == "__main__":
    sys.exit("a module of check_random_programs.py")
