"""Elements around an array."""

from .shaping import sliced


def cropped(n, x, before, after):
    """Negative pads cut elements off."""
    for axis in range(x.rank):
        if before[axis] < 0 or after[axis] < 0:
            size = n.known_size(x, axis)
            total = before[axis] + size + after[axis]
            if total < 0:
                raise n.malformed(f"pads {before[axis]} and {after[axis]} of axis {axis} of {x!r}")
            first, last = max(-before[axis], 0), size + min(after[axis], 0)
            x = sliced(n, x, axis, first, max(first, last), 1)
            if first >= last:  # no element is left, and some of the padding goes, too
                before[axis], after[axis] = total, 0
    return x, [max(one, 0) for one in before], [max(one, 0) for one in after]


def padded(n, x, before, after, mode, number):
    before, after = tuple(before), tuple(after)
    if mode != "constant":
        return n.b.pad(x, before=before, after=after, mode="circular" if mode == "wrap" else mode)
    if number is None or number.is_known:
        plain = 0 if number is None else n.number(number, "the value")
        if isinstance(plain, float) or not isinstance(plain, complex) and abs(plain) <= 2**53:
            return n.b.pad(x, before=before, after=after, value=float(plain))
    inside = n.b.pad(n.b.full(x.shape, True, "bool"), before=before, after=after)
    filler = n.b.reshape_to(number, ())
    return n.b.where(inside, n.b.pad(x, before=before, after=after), filler)
