"""Cases of recurrent layers. Expected values come from NumPy in float64, by the formulas of PyTorch's
LSTM, GRU and RNN (checked against torch 2.15 once)."""
import numpy as np

from op_cases import Cases, as_type, main, to_double


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, h, c, w_ih, w_hh, b):
    outputs = []
    for step in x:
        i, f, g, o = np.split(step @ w_ih.T + h @ w_hh.T + b, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return outputs, c


def gru(x, h, w_ih, w_hh, b):
    outputs = []
    for step in x:
        xr, xz, xn = np.split(step @ w_ih.T, 3, -1)
        hr, hz, hn = np.split(h @ w_hh.T + b, 3, -1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        h = (1 - z) * np.tanh(xn + r * hn) + z * h
        outputs.append(h)
    return outputs


def rnn(x, h, w_ih, w_hh, b):
    outputs = []
    for step in x:
        h = np.tanh(step @ w_ih.T + h @ w_hh.T + b)
        outputs.append(h)
    return outputs


def generate(cases: Cases):
    rng = cases.rng
    for number in range(2 if cases.small else 20):
        steps, batch, width, inner = (int(n) for n in rng.integers(1, 9, 4))
        if number == 0:
            steps = 0 if cases.small else steps
        dtype = "f64" if rng.random() < 0.2 else "f32"

        def reals(*shape):
            return as_type(rng.uniform(-1, 1, shape), dtype)

        for name, gates in (("lstm", 4), ("gru", 3), ("rnn", 1)):
            x, h, c = reals(steps, batch, inner), reals(batch, width), reals(batch, width)
            weights = [reals(gates * width, inner), reals(gates * width, width), reals(gates * width)]
            doubles = [to_double(value) for value in (x, h, c, *weights)]
            if name == "lstm":
                outputs, cell = lstm(*doubles)
                cases.add("lstm_cell", [x, h, c, *weights], as_type(cell, dtype), {"constants": [3, 4, 5]}, (1e-5, 1e-5))
            else:
                outputs = (gru if name == "gru" else rnn)(doubles[0], doubles[1], *doubles[3:])
            stacked = np.array(outputs).reshape(steps, batch, width)
            cases.add(name, [x, h, c, *weights], as_type(stacked, dtype), {"constants": [3, 4, 5]}, (1e-5, 1e-5))


if __name__ == "__main__":
    main(generate, __doc__)
