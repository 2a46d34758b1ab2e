// Matrices that stay packed, as they lie in a GGUF file: blocks of 32 or 256 numbers of a row with a scale each.
//
// A product with one vector reads the packed numbers; for several vectors some rows at a time are unpacked. Block layouts: ggml-quants.
import { HALVES, product, tensor } from "./tensor.js";

const QK = 32; // numbers of a block of Q4_0, Q4_1, Q8_0

export class PackedMatrix {
  // `kind`, `shape` (out, in) and `bytes` of a tensor of gguf.js.
  constructor({ kind, shape, bytes }) {
    Object.assign(this, { kind, shape, bytes, format: FORMATS[kind], stride: bytes.length / shape[0] }); // stride: bytes of a row
    this.halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1);
    this.signed = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  // x Wᵀ + b: (T, in) -> (T, out)
  product(x, bias) {
    const [outputs, inputs] = this.shape, count = x.data.length / inputs, y = tensor([...x.shape.slice(0, -1), outputs]);
    if (count === 1 && this.format.vector) this.format.vector(this, new Float64Array(x.data), sumsOf(x.data), y.data);
    else this.matrixProduct(x.data, count, y.data);
    if (bias) for (let at = 0; at < y.data.length; at++) y.data[at] += bias.data[at % outputs];
    return y;
  }
  matrixProduct(data, count, y) {
    const [outputs, inputs] = this.shape, x = new Float64Array(Math.ceil(count / TOKENS) * TOKENS * inputs);
    const w = new Float64Array(ROWS * inputs);
    x.set(data);
    for (let from = 0; from < outputs; from += ROWS) {
      const rows = Math.min(ROWS, outputs - from);
      for (let row = 0; row < rows; row++) this.unpack(from + row, w.subarray(row * inputs, (row + 1) * inputs));
      for (let row = 0; row < rows; row += 2) for (let t = 0; t < count; t += TOKENS)
        tile(w, row * inputs, x, t * inputs, inputs, y, t * outputs + from + row, outputs, Math.min(TOKENS, count - t), Math.min(2, rows - row));
    }
  }

  // Rows by their numbers: (T) -> (T, in)
  rows(ids) {
    const inputs = this.shape[1], y = tensor([ids.length, inputs]);
    ids.forEach((id, at) => this.unpack(id, y.data.subarray(at * inputs, (at + 1) * inputs)));
    return y;
  }
  unpack(row, y) {
    this.format.unpack(this, row * this.stride, y);
  }

  // Bring the rows of each of `heads` heads from pairs (2k, 2k + 1) to halves (k, k + K/2), in place: GGUF files of LLaMA have the former.
  pairsToHalves(heads) {
    const width = this.shape[0] / heads, { stride } = this;
    for (let head = 0; head < heads; head++) {
      const own = this.bytes.subarray(head * width * stride, (head + 1) * width * stride), before = own.slice();
      for (let row = 0; row < width; row++) {
        const to = (row % 2) * (width / 2) + (row >> 1);
        own.set(before.subarray(row * stride, (row + 1) * stride), to * stride);
      }
    }
  }
}
const ROWS = 32, TOKENS = 4; // rows unpacked at once, which stay in the processor's cache; vectors that share a read of a row

// Two rows of W from `row`, times four vectors of x from `vector`: the numbers of `tokens` of them and `rows` of those to y.
function tile(w, row, x, vector, width, y, to, stride, tokens, rows) {
  let a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  for (let i = 0, t = vector, u = vector + width, v = u + width, z = v + width; i < width; i++) {
    const p = w[row + i], q = w[row + width + i], x0 = x[t + i], x1 = x[u + i], x2 = x[v + i], x3 = x[z + i];
    a += p * x0;
    b += p * x1;
    c += p * x2;
    d += p * x3;
    e += q * x0;
    f += q * x1;
    g += q * x2;
    h += q * x3;
  }
  const first = [a, b, c, d], second = [e, f, g, h];
  for (let token = 0; token < tokens; token++, to += stride) {
    y[to] = first[token];
    if (rows > 1) y[to + 1] = second[token];
  }
}

// The sum of each block of a vector.
function sumsOf(vector) {
  const sums = new Float64Array(Math.ceil(vector.length / QK));
  for (let at = 0; at < vector.length; at++) sums[at >> 5] += vector[at];
  return sums;
}

// All rows of 4-bit numbers times a vector, two rows at once. A block of `size` units of 16 bits is a scale d, for `least` a
// smallest number m, and 16 bytes: byte j holds numbers j (low) and j + 16 (high). Each number is d q + m, without m d (q − 8).
function nibbles({ shape: [outputs], halves: u }, size, least, x, sums, y) {
  const blocks = sums.length, header = least ? 2 : 1;
  for (let row = 0; row < outputs; row += 2) {
    let total = 0, next = 0;
    const gap = row + 1 < outputs ? blocks * size : 0; // the last of an odd number is read twice
    for (let block = 0, at = row * blocks * size; block < blocks; block++, at += size) {
      let p = 0, q = 0, r = 0, s = 0;
      for (let j = 0, i = block * QK, own = at + header; j < 8; j++, i += 2, own++) {
        const a = u[own], b = u[own + gap], x0 = x[i], x1 = x[i + 1], x2 = x[i + 16], x3 = x[i + 17];
        p += (a & 15) * x0 + ((a >> 8) & 15) * x1;
        q += ((a >> 4) & 15) * x2 + (a >> 12) * x3;
        r += (b & 15) * x0 + ((b >> 8) & 15) * x1;
        s += ((b >> 4) & 15) * x2 + (b >> 12) * x3;
      }
      const scale = HALVES[u[at]], other = HALVES[u[at + gap]];
      total += scale * (p + q) + (least ? HALVES[u[at + 1]] : -8 * scale) * sums[block];
      next += other * (r + s) + (least ? HALVES[u[at + gap + 1]] : -8 * other) * sums[block];
    }
    y[row] = total;
    if (gap) y[row + 1] = next;
  }
}
function unpackNibbles({ bytes, halves }, at, y, header, least) {
  for (let from = 0; from < y.length; from += QK, at += header + 16) {
    const scale = HALVES[halves[at >> 1]], plus = least ? HALVES[halves[(at >> 1) + 1]] : -8 * scale;
    for (let j = 0; j < 16; j++) {
      y[from + j] = scale * (bytes[at + header + j] & 15) + plus;
      y[from + j + 16] = scale * (bytes[at + header + j] >> 4) + plus;
    }
  }
}

// Of each kind: `unpack` writes the numbers of the row that begins at a byte, `vector` all products with a vector (`sums` by block).
const FORMATS = {
  Q4_0: {
    vector: (matrix, x, sums, y) => nibbles(matrix, 9, false, x, sums, y),
    unpack: (matrix, at, y) => unpackNibbles(matrix, at, y, 2, false),
  },
  Q4_1: {
    vector: (matrix, x, sums, y) => nibbles(matrix, 10, true, x, sums, y),
    unpack: (matrix, at, y) => unpackNibbles(matrix, at, y, 4, true),
  },
  // d q, q of 8 bits
  Q8_0: {
    vector({ shape: [outputs], signed, halves }, x, sums, y) {
      for (let row = 0, at = 0; row < outputs; row++) {
        let total = 0;
        for (let block = 0; block < sums.length; block++, at += 34) {
          let p = 0, q = 0;
          for (let j = 0, own = at + 2, i = block * QK; j < QK; j += 4, own += 4, i += 4) {
            p += signed[own] * x[i] + signed[own + 1] * x[i + 1];
            q += signed[own + 2] * x[i + 2] + signed[own + 3] * x[i + 3];
          }
          total += HALVES[halves[at >> 1]] * (p + q);
        }
        y[row] = total;
      }
    },
    unpack({ signed, halves }, at, y) {
      for (let from = 0; from < y.length; from += QK, at += 34) {
        const scale = HALVES[halves[at >> 1]];
        for (let j = 0; j < QK; j++) y[from + j] = scale * signed[at + 2 + j];
      }
    },
  },
  // d s q: 256 numbers of 6 bits (4 low ones, 2 high ones), a scale s of 8 bits for each 16
  Q6_K: {
    unpack({ bytes, signed, halves }, at, y) {
      for (let from = 0; from < y.length; from += 256, at += 210) {
        const scale = HALVES[halves[(at + 208) >> 1]];
        for (let i = 0; i < 256; i++) {
          const half = i >> 7, quarter = (i >> 5) & 3, l = i & 31;
          const low = (bytes[at + 64 * half + 32 * (quarter & 1) + l] >> (4 * (quarter >> 1))) & 15;
          const high = (bytes[at + 128 + 32 * half + l] >> (2 * quarter)) & 3;
          y[from + i] = scale * signed[at + 192 + (i >> 4)] * ((low | (high << 4)) - 32);
        }
      }
    },
  },
  F16: {
    unpack({ halves }, at, y) {
      for (let i = 0; i < y.length; i++) y[i] = HALVES[halves[(at >> 1) + i]];
    },
  },
  F32: {
    unpack({ bytes }, at, y) {
      y.set(new Float32Array(bytes.buffer, bytes.byteOffset + at, y.length));
    },
  },
};
