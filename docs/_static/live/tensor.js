// Numbers: tensors, half floats, files of weights, products, softmax.
//
// A tensor is {shape, data}: `data` is a Float32Array, row after row. Sums are made in float64, as all of JavaScript's are.

const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);
export const tensor = (shape, data = new Float32Array(sizeOf(shape))) => ({ shape, data });
export const map = (x, f) => tensor(x.shape, x.data.map(f));
export const add = (x, y) => tensor(x.shape, x.data.map((value, at) => value + y.data[at]));
export const multiply = (x, y) => tensor(x.shape, x.data.map((value, at) => value * y.data[at]));

// The number that 16 bits stand for (IEEE 754): a sign, 5 bits of exponent, 10 of fraction.
function half(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}
export const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => half(bits));

// The tensors of a safetensors file by name: the length of a JSON header in 8 bytes, the header, the numbers.
export function readSafetensors(buffer) {
  const start = 8 + Number(new DataView(buffer).getBigUint64(0, true)), found = {};
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  delete header.__metadata__;
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
    if (dtype !== "F16") throw new Error(`${name}: is ${dtype}, and the page reads F16 only`);
    found[name] = tensor(shape, Float32Array.from(new Uint16Array(buffer.slice(start + from, start + to)), (bits) => HALVES[bits]));
  }
  return found;
}

// x Wᵀ + b: (T, in), (out, in), (out) -> (T, out). A row of W is read once for four rows of x. A packed W has a product of its own.
export function product(x, weight, bias) {
  if (weight.product) return weight.product(x, bias);
  const [outputs, inputs] = weight.shape, rows = x.data.length / inputs;
  const y = tensor([...x.shape.slice(0, -1), outputs]), from = x.data, to = y.data, w = weight.data;
  for (let row = 0; row < rows; row += 4) {
    const left = Math.min(4, rows - row), [a, b, c, d] = [0, 1, 2, 3].map((n) => (row + (n < left ? n : 0)) * inputs);
    for (let out = 0; out < outputs; out++) {
      let p = 0, q = 0, r = 0, s = 0;
      for (let i = 0, at = out * inputs; i < inputs; i++, at++) {
        const each = w[at];
        p += from[a + i] * each;
        q += from[b + i] * each;
        r += from[c + i] * each;
        s += from[d + i] * each;
      }
      const plus = bias ? bias.data[out] : 0, place = row * outputs + out;
      to[place] = p + plus;
      if (left > 1) to[place + outputs] = q + plus;
      if (left > 2) to[place + 2 * outputs] = r + plus;
      if (left > 3) to[place + 3 * outputs] = s + plus;
    }
  }
  return y;
}

// log Σ exp(x) of a row, without overflow, and exp(x) / Σ exp(x).
export function logsumexp(row) {
  let most = -Infinity, total = 0;
  for (const x of row) if (x > most) most = x;
  for (const x of row) total += Math.exp(x - most);
  return most + Math.log(total);
}
export function softmax(row) {
  const total = logsumexp(row), p = new Float32Array(row.length);
  for (let at = 0; at < p.length; at++) p[at] = Math.exp(row[at] - total);
  return p;
}

// The rows along the last axis.
export function rowsOf({ data, shape }) {
  const width = shape.at(-1);
  return Array.from({ length: data.length / width }, (_, row) => data.subarray(row * width, (row + 1) * width));
}

// The first two axes exchanged: (A, B, C) -> (B, A, C)
export function swap({ data, shape: [a, b, width] }) {
  const y = tensor([b, a, width]);
  for (let i = 0; i < a; i++) for (let j = 0; j < b; j++) {
    const from = (i * b + j) * width;
    y.data.set(data.subarray(from, from + width), (j * a + i) * width);
  }
  return y;
}

// Tensors one after the other along an axis. Where later axes are shorter than those of the last one, zeros follow.
export function concatenate(parts, axis) {
  const last = parts.at(-1), shape = last.shape.with(axis, parts.reduce((sum, part) => sum + part.shape[axis], 0));
  const outer = sizeOf(shape.slice(0, axis)), inner = sizeOf(shape.slice(axis + 1)), y = new last.data.constructor(sizeOf(shape));
  let before = 0; // rows of the axis
  for (const { data, shape: own } of parts) {
    const width = data.length / outer / own[axis];
    for (let o = 0; o < outer; o++) for (let t = 0; t < own[axis]; t++) {
      const from = (o * own[axis] + t) * width;
      y.set(data.subarray(from, from + width), (o * shape[axis] + before + t) * inner);
    }
    before += own[axis];
  }
  return tensor(shape, y);
}

// The indices of the `count` largest numbers of a row, the largest first; of equal ones the first comes first.
export function likeliest(row, count) {
  const best = [];
  for (let at = 0; at < row.length; at++) {
    if (best.length === count && !(row[at] > row[best[count - 1]])) continue;
    let place = best.length;
    while (place && row[at] > row[best[place - 1]]) place--;
    best.splice(place, 0, at);
    if (best.length > count) best.pop();
  }
  return best;
}
