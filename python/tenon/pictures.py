"""What notebooks show: arrays as tables, a run's times as bars. Programs have a picture of the library's, to_svg()."""

import html

import numpy as np

from . import _tenon
from .errors import Error

_ROWS, _COLUMNS = 12, 12  # of a table, at most
_BAR, _LINE = 320, 20  # pixels
_NUMPY = "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 c64".split()  # types that it has


def array_html(array):
    """The array's type, and the numbers of its last two axes, coloured by size and sign."""
    title = html.escape(f"{array.type}")
    try:
        values = array.astype("f32").numpy() if str(array.dtype) not in _NUMPY else array.numpy()
    except Error:
        return f"<code>{title}</code>"
    if values.ndim > 2:
        if values.size:
            title += f", at {[0] * (values.ndim - 2)}"
            values = values[(0,) * (values.ndim - 2)]
        else:
            values = values.reshape(0)
    table = values.reshape(-1 if values.ndim < 2 else values.shape[0], values.shape[-1] if values.ndim == 2 else 1)
    table = table.T if values.ndim < 2 else table
    scale = _largest(table)
    lines = ["".join(_cell(table[i, j], scale) if i >= 0 and j >= 0 else "<td>...</td>"
                     for j in _shown(table.shape[1], _COLUMNS)) for i in _shown(table.shape[0], _ROWS)]
    return f"<code>{title}</code><table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"




def _shown(size, most):
    """Indices to show of an axis; -1 stands for those that are left out."""
    if size <= most:
        return list(range(size))
    return [*range(most // 2), -1, *range(size - most // 2, size)]


def _largest(values):
    finite = np.abs(values[np.isfinite(values)]).astype(float)
    return float(finite.max()) if finite.size else 0.0


def _cell(value, scale):
    strength = float(abs(value)) / scale if scale and np.isfinite(value) else 0.0
    colour = "220, 80, 60" if value.real < 0 else "60, 110, 220"
    text = f"{value:.5g}" if value.dtype.kind in "fc" else str(value)
    return f'<td style="background: rgba({colour}, {0.45 * strength:.2f})">{text}</td>'


class Profile:
    """Where the time of a session's last run went.

        session.enable_time_profile()
        session.forward(x)
        tenon.Profile(session)

    `ops` has (op, how often it ran, seconds), the longest first; str() is the library's table, notebooks show bars.
    """

    def __init__(self, session):
        self.table, totals = session.profile_table(), {}
        for step in session.step_times():
            for part in step["parts"] or [{"op": step["backend"], "count": 1, "wall": step["wall"]}]:
                count, wall = totals.get(part["op"], (0, 0.0))
                totals[part["op"]] = count + part["count"], wall + part["wall"]
        if not totals:
            _tenon._raise_error("CallOrder", "Profile", "no times: enable_time_profile() comes before the first run")
        self.ops = sorted(((op, *rest) for op, rest in totals.items()), key=lambda row: -row[2])

    def __str__(self):
        return self.table

    def __repr__(self):
        return f"Profile: {sum(wall for _, _, wall in self.ops) * 1e3:.3f} ms in {len(self.ops)} ops"

    def _repr_svg_(self):
        total, longest = sum(row[2] for row in self.ops), self.ops[0][2]
        lines = []
        for i, (op, count, wall) in enumerate(self.ops):
            y = _LINE * i
            width = max(_BAR * wall / longest, 1) if longest else 1
            text = f"{wall * 1e3:.3f} ms, {100 * wall / total if total else 0:.0f} %, {count} times"
            lines.append(f'<text x="170" y="{y + 14}" text-anchor="end">{html.escape(op)}</text>'
                         f'<rect x="176" y="{y + 3}" width="{width:.1f}" height="{_LINE - 6}" fill="#4472c4"/>'
                         f'<text x="{180 + width:.1f}" y="{y + 14}">{text}</text>')
        size = f'width="{_BAR + 400}" height="{_LINE * len(self.ops)}"'
        return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">'
                f'{"".join(lines)}</svg>')
