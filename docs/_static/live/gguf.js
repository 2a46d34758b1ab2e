// The header of a GGUF file: metadata by key, and where each tensor lies. Nothing is copied: tensors are views of the file.
// Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

// Names of types by number; numbers and bytes of a block of those that packed.js reads.
const KINDS = { 0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
  13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
  23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4" };
const BLOCKS = { F32: [1, 4], F16: [1, 2], Q4_0: [32, 18], Q4_1: [32, 20], Q8_0: [32, 34], Q6_K: [256, 210] };
const SCALARS = { 0: ["Uint8", 1], 1: ["Int8", 1], 2: ["Uint16", 2], 3: ["Int16", 2], 4: ["Uint32", 4], 5: ["Int32", 4],
  6: ["Float32", 4], 7: ["Uint8", 1], 10: ["BigUint64", 8], 11: ["BigInt64", 8], 12: ["Float64", 8] };
const BOOL = 7, TEXT = 8, ARRAY = 9, ALIGNMENT = 32;

// An error that the page tells in the reader's language: a name of its texts, and the values in it.
export class Refusal extends Error {
  constructor(name, values = {}) {
    super(`${name} ${JSON.stringify(values)}`);
    Object.assign(this, { refusal: name, values });
  }
}

// The metadata and the tensors of a file: {metadata, tensors: {name: {kind, shape, bytes}}}; shape (…, out, in), `bytes` a view.
export function readGguf(buffer) {
  if (buffer.byteLength < 4 || new TextDecoder().decode(new Uint8Array(buffer, 0, 4)) !== "GGUF") throw new Refusal("not_gguf");
  try {
    return read(new Cursor(buffer));
  } catch (error) {
    if (error instanceof RangeError) throw new Refusal("truncated"); // DataView read past the file's end
    throw error;
  }
}

function read(cursor) {
  const version = cursor.scalar(4), metadata = Object.create(null), tensors = Object.create(null);
  if (version !== 2 && version !== 3) throw new Refusal("version", { version });
  const count = cursor.length(), keys = cursor.length();
  for (let at = 0; at < keys; at++) metadata[cursor.text()] = cursor.value(cursor.scalar(4));
  const found = Array.from({ length: count }, () => ({
    name: cursor.text(), shape: Array.from({ length: cursor.scalar(4) }, () => cursor.length()).reverse(), kind: cursor.scalar(4), offset: cursor.length(),
  }));
  const alignment = metadata["general.alignment"] ?? ALIGNMENT, start = Math.ceil(cursor.at / alignment) * alignment;
  for (const { name, shape, kind: number, offset } of found) {
    const kind = KINDS[number] ?? `type ${number}`, numbers = shape.reduce((a, b) => a * b, 1);
    if (!BLOCKS[kind]) throw new Refusal("kind", { tensor: name, kind, known: Object.keys(BLOCKS).join(", ") });
    const [size, bytes] = BLOCKS[kind], length = (numbers / size) * bytes;
    if (shape.at(-1) % size) throw new Refusal("shape", { tensor: name, shape: shape.join(" × ") });
    if (start + offset + length > cursor.buffer.byteLength) throw new Refusal("truncated");
    tensors[name] = { kind, shape, bytes: new Uint8Array(cursor.buffer, start + offset, length) };
  }
  return { metadata, tensors };
}

// A place in the file, moved on by each read; numbers are little-endian.
class Cursor {
  constructor(buffer) {
    Object.assign(this, { buffer, data: new DataView(buffer), at: 4, decoder: new TextDecoder() });
  }
  scalar(kind) {
    const [name, size] = SCALARS[kind], value = this.data[`get${name}`](this.at, true);
    this.at += size;
    return kind === BOOL ? value !== 0 : typeof value === "bigint" ? Number(value) : value;
  }
  // A count of 64 bits, of at least one byte each: none is larger than the file.
  length() {
    const value = this.scalar(10);
    if (value > this.buffer.byteLength) throw new Refusal("truncated");
    return value;
  }
  text() {
    const length = this.length(), bytes = new Uint8Array(this.buffer, this.at, length);
    this.at += length;
    return this.decoder.decode(bytes);
  }
  value(kind) {
    if (kind === TEXT) return this.text();
    if (kind !== ARRAY) {
      if (!SCALARS[kind]) throw new Refusal("truncated");
      return this.scalar(kind);
    }
    const inner = this.scalar(4), length = this.length();
    return Array.from({ length }, () => this.value(inner));
  }
}
