"""RNN, GRU and LSTM."""

import numpy as np

from ..importing import loops
from ..importing.shaping import sliced
from .gathers import reversed_steps
from .node import op

_UNROLLED = 4  # steps up to which a loop is not worth its function


def _activations(n, count):
    """The functions of one direction, by name, with alpha and beta."""
    defaults = {1: ["Tanh"], 2: ["Sigmoid", "Tanh"], 3: ["Sigmoid", "Tanh", "Tanh"]}[count]
    directions = 2 if n.attribute("direction", "forward") == "bidirectional" else 1
    names = n.attribute("activations", defaults * directions)
    if len(names) != count * directions:
        raise n.malformed(f"attribute 'activations': {names}")
    alphas, betas = list(n.attribute("activation_alpha", [])), list(n.attribute("activation_beta", []))
    return [_activation(n, name.lower(), alphas, betas) for name in names]


def _activation(n, name, alphas, betas):
    b = n.b

    def take(values, default):
        return values.pop(0) if values else default

    if name == "affine":
        alpha, beta = take(alphas, 1.0), take(betas, 0.0)
        return lambda x: x * alpha + beta
    if name == "scaledtanh":
        alpha, beta = take(alphas, 1.0), take(betas, 1.0)
        return lambda x: b.tanh(x * beta) * alpha
    if name == "hardsigmoid":
        alpha, beta = take(alphas, 0.2), take(betas, 0.5)
        return lambda x: b.clamp(x * alpha + beta, min=0.0, max=1.0)
    if name in ("leakyrelu", "elu"):
        alpha = take(alphas, 0.01 if name == "leakyrelu" else 1.0)
        function = b.leaky_relu if name == "leakyrelu" else b.elu
        return lambda x: function(x, alpha=alpha)
    if name == "thresholdedrelu":
        alpha = take(alphas, 1.0)
        return lambda x: b.where(b.gt(x, alpha), x, b.number(0, x.dtype))
    if name == "softsign":
        return lambda x: x / (b.abs(x) + 1.0)
    plain = {"tanh": b.tanh, "sigmoid": b.sigmoid, "relu": b.relu, "softplus": b.softplus}
    if name not in plain:
        raise n.error(f"{name!r}", "activations")
    return plain[name]


class _Layer:
    """One recurrent node: what its directions share."""

    def __init__(self, n, gates, x, lengths):
        self.n, self.b, self.gates = n, n.b, gates
        self.layout = n.attribute("layout", 0)
        self.x = n.b.permute(x, [1, 0, 2]) if self.layout else x
        self.x.has_shape((x.shape[1], x.shape[0], x.shape[2]) if self.layout else x.shape)
        self.steps, self.batch = n.known_size(self.x, 0), self.x.shape[1]
        self.hidden = n.attribute("hidden_size", None)
        self.direction = n.words("direction", "forward", ("forward", "reverse", "bidirectional"))
        clip = n.attribute("clip", 0.0)
        self.clip = (lambda one: n.b.clamp(one, min=-clip, max=clip)) if clip > 0 else (lambda one: one)
        self.lengths = self._needed(lengths)

    def _needed(self, lengths):
        if lengths is None or lengths.is_known and (lengths.array == self.steps).all():
            return None
        return lengths

    def initial(self, value, direction):
        """The state that a direction begins with: [B, H]."""
        if value is None:
            return self.b.full((self.batch, self.hidden), 0, self.x.dtype)
        value = self.b.permute(value, [1, 0, 2]) if self.layout else value
        return self.part(value, direction)

    def part(self, value, direction):
        return self.b.squeeze(sliced(self.n, value, 0, direction, direction + 1, 1), axis=0)

    def run(self, direction, w, bias, states, step):
        """The states after each step, of a direction: [T, B, H], and the last states. `step` is given the products of
        inputs, with the bias, and the states."""
        backwards = self.direction == "reverse" or direction == 1
        x = self._turned(self.x) if backwards else self.x
        products = self.b.linear(x, self.part(w, direction), bias=bias)
        outputs, last = self._loop(products, states, step)
        return (self._turned(outputs) if backwards else outputs), last

    def _turned(self, x):
        if self.lengths is None:
            return sliced(self.n, x, 0, -1, None, -1)
        return reversed_steps(self.n, x, self.lengths, 0, 1)

    def _loop(self, products, states, step):
        values = [products, *states, *([self.lengths] if self.lengths is not None else [])]
        if self.steps <= _UNROLLED or all(one.is_known for one in values):
            return self._unrolled(products, states, step)
        marks = self.b.known(self.n.arange(self.steps))

        def body(now, slices):
            after, output = self._masked(now, step(slices[0], *now), slices[1])
            return after, [output]

        last, (outputs,) = loops.scan(self.b, body, states, [products, marks], self.steps)
        return outputs, last

    def _unrolled(self, products, states, step):
        outputs = []
        for number in range(self.steps):
            product = self.b.squeeze(sliced(self.n, products, 0, number, number + 1, 1), axis=0)
            states, output = self._masked(states, step(product, *states), self.b.known(np.int64(number)))
            outputs.append(self.b.unsqueeze(output, 0))
        if not outputs:
            return self.b.full((0, self.batch, self.hidden), 0, self.x.dtype), states
        return self.b.concat(outputs, 0), states

    def _masked(self, before, after, number):
        """After a row's last step its states stay, and its outputs are 0."""
        if self.lengths is None:
            return after, after[0]
        goes_on = self.b.reshape_to(self.b.lt(self.b.cast(number, "i64"), self.b.cast(self.lengths, "i64")),
                                    (self.batch, 1))
        kept = [self.b.where(goes_on, new, old) for new, old in zip(after, before)]
        return kept, self.b.where(goes_on, after[0], self.b.number(0, after[0].dtype))

    def results(self, outputs, *lasts):
        """Y and the last states of all directions."""
        y = self.b.concat([self.b.unsqueeze(one, 1) for one in outputs], 1)       # [T, D, B, H]
        ends = [self.b.concat([self.b.unsqueeze(one, 0) for one in last], 0) for last in lasts]
        if self.layout:
            y = self.b.permute(y, [2, 0, 1, 3])
            ends = [self.b.permute(one, [1, 0, 2]) for one in ends]
        return (y, *ends)


def _biases(layer, bias, direction):
    """The two halves of a direction's bias, or zeros."""
    size = layer.gates * layer.hidden
    if bias is None:
        zeros = layer.b.full((size,), 0, layer.x.dtype)
        return zeros, zeros
    both = layer.part(bias, direction)
    return sliced(layer.n, both, 0, 0, size, 1), sliced(layer.n, both, 0, size, 2 * size, 1)


def _split(layer, value, axis=-1):
    """The gates of a value whose last axis holds them one after the other."""
    axis = axis % value.rank
    return [sliced(layer.n, value, axis, i * layer.hidden, (i + 1) * layer.hidden, 1) for i in range(layer.gates)]


def _opened(n, gates, x, r, lengths):
    layer = _Layer(n, gates, x, lengths)
    layer.hidden = layer.hidden or n.static(r, "R")[2]
    directions = 2 if layer.direction == "bidirectional" else 1
    if n.static(r, "R") != (directions, gates * layer.hidden, layer.hidden):
        raise n.malformed(f"weights {r!r} for a hidden size of {layer.hidden} and {directions} directions")
    return layer, directions


@op("RNN")
def rnn(n, x, w, r, bias=None, lengths=None, initial=None):
    layer, directions = _opened(n, 1, x, r, lengths)
    functions = _activations(n, 1)
    outputs, lasts = [], []
    for d in range(directions):
        matrix, (left, right) = layer.part(r, d), _biases(layer, bias, d)

        def step(product, h, function=functions[d], matrix=matrix):
            return [function(layer.clip(layer.b.linear(h, matrix, residual=product)))]

        y, (last,) = layer.run(d, w, left + right, [layer.initial(initial, d)], step)
        outputs.append(y)
        lasts.append(last)
    return layer.results(outputs, lasts)


@op("GRU")
def gru(n, x, w, r, bias=None, lengths=None, initial=None):
    layer, directions = _opened(n, 3, x, r, lengths)
    functions = _activations(n, 2)
    after = n.attribute("linear_before_reset", 0)
    b = n.b
    outputs, lasts = [], []
    for d in range(directions):
        f, g = functions[2 * d:2 * d + 2]
        left, right = _biases(layer, bias, d)
        recurrent = layer.part(r, d)
        size = layer.hidden
        gates, candidate = sliced(n, recurrent, 0, 0, 2 * size, 1), sliced(n, recurrent, 0, 2 * size, 3 * size, 1)
        right_candidate = sliced(n, right, 0, 2 * size, 3 * size, 1)
        if after:  # the bias of the candidate's state is multiplied by the reset gate, too
            right = b.concat([sliced(n, right, 0, 0, 2 * size, 1), b.full((size,), 0, right.dtype)], 0)

        def step(product, h, f=f, g=g, gates=gates, candidate=candidate, right_candidate=right_candidate):
            zr = sliced(n, product, 1, 0, 2 * size, 1) + b.linear(h, gates)
            update, reset = (f(layer.clip(one)) for one in (sliced(n, zr, 1, 0, size, 1),
                                                            sliced(n, zr, 1, size, 2 * size, 1)))
            third = sliced(n, product, 1, 2 * size, 3 * size, 1)
            if after:
                third = third + reset * b.linear(h, candidate, bias=right_candidate)
            else:
                third = third + b.linear(reset * h, candidate)
            hidden = g(layer.clip(third))
            return [(1.0 - update) * hidden + update * h]

        y, (last,) = layer.run(d, w, left + right, [layer.initial(initial, d)], step)
        outputs.append(y)
        lasts.append(last)
    return layer.results(outputs, lasts)


@op("LSTM")
def lstm(n, x, w, r, bias=None, lengths=None, initial=None, initial_cell=None, peepholes=None):
    layer, directions = _opened(n, 4, x, r, lengths)
    functions = _activations(n, 3)
    coupled = n.attribute("input_forget", 0)
    b = n.b
    outputs, lasts, cells = [], [], []
    for d in range(directions):
        f, g, h_function = functions[3 * d:3 * d + 3]
        left, right = _biases(layer, bias, d)
        matrix = layer.part(r, d)
        weights = None
        if peepholes is not None:
            row = layer.part(peepholes, d)
            weights = [sliced(n, row, 0, i * layer.hidden, (i + 1) * layer.hidden, 1) for i in range(3)]

        def step(product, h, c, f=f, g=g, out=h_function, matrix=matrix, weights=weights):
            i, o, forget, cell = _split(layer, b.linear(h, matrix, residual=product))
            if weights:
                i, forget = i + weights[0] * c, forget + weights[2] * c
            i = f(layer.clip(i))
            forget = 1.0 - i if coupled else f(layer.clip(forget))
            c = forget * c + i * g(layer.clip(cell))
            if weights:
                o = o + weights[1] * c
            return [f(layer.clip(o)) * out(c), c]

        states = [layer.initial(initial, d), layer.initial(initial_cell, d)]
        y, (last, cell) = layer.run(d, w, left + right, states, step)
        outputs.append(y)
        lasts.append(last)
        cells.append(cell)
    return layer.results(outputs, lasts, cells)
