"""Sums of products by letters."""

from . import sizes as sz
from .shaping import shaped


def einsum(n, text, values):
    """The sum of products that an equation such as "bij,bjk->bik" stands for."""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise n.malformed(f"{n.part} 'equation': {text!r} for {len(values)} inputs")
    terms, dots = _with_letters_for_dots(n, terms, values)
    if not arrow:
        letters = "".join(terms)
        right = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots))
    right = right.replace("...", dots)
    size = {}
    for term, value in zip(terms, values):
        for letter, one in zip(term, value.shape):
            size[letter] = one if size.get(letter, 1) == 1 else size[letter]
    if any(c not in size for c in right) or len(set(right)) != len(right):
        raise n.malformed(f"{n.part} 'equation': {text!r}")
    terms, values = map(list, zip(*(_diagonals(n, term, value) for term, value in zip(terms, values))))
    while len(values) > 1:
        rest = set(right) | set("".join(terms[2:]))
        term, value = _contracted(n, terms[0], values[0], terms[1], values[1], rest)
        terms, values = [term, *terms[2:]], [value, *values[2:]]
    term, value = _summed(n, terms[0], values[0], set(right))
    return n.b.broadcast(n.b.permute(value, [term.index(c) for c in right]) if right else value,
                         tuple(size[c] for c in right))


def _with_letters_for_dots(n, terms, values):
    """Letters of their own for the axes that an ellipsis stands for."""
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in "".join(terms)]
    ranks = [value.rank - len(term.replace("...", "")) for term, value in zip(terms, values)]
    for term, rank in zip(terms, ranks):
        if rank < 0 or rank and "..." not in term or not term.replace("...", "").isalpha() and term not in ("", "..."):
            raise n.malformed(f"{n.part} 'equation': the term {term!r}")
    count = max((rank for term, rank in zip(terms, ranks) if "..." in term), default=0)
    dots = "".join(free[:count])
    return [term.replace("...", dots[count - rank:]) for term, rank in zip(terms, ranks)], dots


def _diagonals(n, term, value):
    """A letter that occurs twice in a term takes the diagonal, which lies at its last place: the term and value left."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            size = n.known_size(value, first)
            form = [1] * value.rank
            form[second] = size
            index = n.b.broadcast(n.b.known(n.arange(size).reshape(form)),
                                  tuple(1 if i == first else one for i, one in enumerate(n.static(value))))
            value = n.b.squeeze(n.b.take_along(value, index, axis=first), axis=first)
            term = term[:first] + term[first + 1:]
    return term, value


def _summed(n, term, value, keep):
    axes = [i for i, c in enumerate(term) if c not in keep]
    if axes:
        value = n.b.cast(n.b.sum(value, axis=axes, keep_dims=False), value.dtype)
    return "".join(c for c in term if c in keep), value


def _contracted(n, left, a, right, b, rest):
    """Two terms as one: a product of matrices over the letters that no other term has."""
    left, a = _summed(n, left, a, rest | set(right))
    right, b = _summed(n, right, b, rest | set(left))
    both = [c for c in left if c in right and c in rest]
    summed = [c for c in left if c in right and c not in rest]
    own_a = [c for c in left if c not in right]
    own_b = [c for c in right if c not in left]
    a_sizes, b_sizes = dict(zip(left, a.shape)), dict(zip(right, b.shape))
    shared = {c: b_sizes[c] if a_sizes[c] == 1 else a_sizes[c] for c in both + summed}
    a = _ordered(n, left, a, both + own_a + summed, {**a_sizes, **shared})
    b = _ordered(n, right, b, both + summed + own_b, {**b_sizes, **shared})
    batch = tuple(shared[c] for c in both)
    inner = sz.product(shared[c] for c in summed)
    a = n.b.reshape_to(a, (*batch, sz.product(a_sizes[c] for c in own_a), inner))
    b = n.b.reshape_to(b, (*batch, inner, sz.product(b_sizes[c] for c in own_b)))
    made = shaped(n.b.matmul(a, b), (*a.shape[:-1], b.shape[-1]))
    sizes = (*batch, *(a_sizes[c] for c in own_a), *(b_sizes[c] for c in own_b))
    return "".join(both + own_a + own_b), n.b.reshape_to(made, sizes)


def _ordered(n, term, value, order, sizes):
    moved = shaped(n.b.permute(value, [term.index(c) for c in order]), tuple(value.shape[term.index(c)] for c in order))
    return n.b.broadcast(moved, tuple(sizes[c] for c in order))
