// Text to ids and back by byte-level BPE (Sennrich et al., 2016; Radford et al., 2019, section 2.2).
//
// A text is cut at the tokens that are added to the vocabulary, the rest by patterns into pieces. The bytes of a piece are
// merged pair by pair, the pair that was learned first before the others.

// Each byte has a letter that can be printed: itself, or for white space and the like one after U+0100 ("Ġ" is a space).
const printed = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
const LETTERS = [], BYTE_OF = new Map();
for (let byte = 0, next = 256; byte < 256; byte++) {
  LETTERS.push(String.fromCharCode(printed(byte) ? byte : next++));
  BYTE_OF.set(LETTERS[byte], byte);
}
const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
const [LENIENT, STRICT] = [false, true].map((fatal) => new TextDecoder("utf-8", { fatal, ignoreBOM: true }));

export class Tokenizer {
  // `vocab`: the token of each id; `merges`: "a b", best first; `patterns`: regular expressions, in which \g<name> stands for
  // `name`; `whole`: a piece that is a token is not merged; `added`: {id, content, special, lstrip, rstrip}.
  constructor({ vocab, merges, patterns, name, whole, added }) {
    Object.assign(this, { vocab, whole, names: [], added: [...added].sort((a, b) => b.content.length - a.content.length) });
    this.ids = new Map(vocab.map((token, id) => [token, id]));
    this.ranks = new Map(merges.map((pair, rank) => [pair, rank]));
    this.patterns = patterns.map((source) => new RegExp(source.replaceAll("\\g<name>", `(?:${name})`), "gu"));
    const spaces = (strip) => (strip ? "\\p{White_Space}*" : "");
    this.cut = new RegExp(this.added.map((t) => spaces(t.lstrip) + escaped(t.content) + spaces(t.rstrip)).join("|"), "gu");
    this.longest = Math.max(...[...vocab, ...added.map(({ content }) => content)].map((token) => token.length));
    this.special = new Set(added.filter((token) => token.special).map((token) => token.id));
  }

  // The ids of a text; null where they are more than `most`. A text with more bytes than so many of the longest tokens have
  // is not merged, which takes time that grows with the square of its length.
  encode(text, most = Infinity) {
    if (new TextEncoder().encode(text).length > most * this.longest) return null;
    const ids = [];
    for (const { part, found } of parts(text, this.cut)) {
      if (found) ids.push(this.added.find(({ content }) => part.includes(content)).id);
      else ids.push(...this.pieces(part).flatMap((piece) => this.merge(piece)));
    }
    return ids.length > most ? null : ids;
  }

  // The pieces of a text: each pattern cuts those that the one before it left.
  pieces(text) {
    return this.patterns.reduce((pieces, pattern) => pieces.flatMap((piece) => parts(piece, pattern).map(({ part }) => part)), [text]);
  }

  merge(piece) {
    let tokens = Array.from(new TextEncoder().encode(piece), (byte) => LETTERS[byte]);
    if (this.whole && this.ids.has(tokens.join(""))) return [this.ids.get(tokens.join(""))];
    for (;;) {
      const ranks = tokens.slice(1).map((right, at) => this.ranks.get(`${tokens[at]} ${right}`) ?? Infinity);
      const best = Math.min(...ranks), at = ranks.indexOf(best);
      if (!(best < Infinity)) return tokens.map((token) => this.ids.get(token));
      tokens = [...tokens.slice(0, at), tokens[at] + tokens[at + 1], ...tokens.slice(at + 2)];
    }
  }

  // The token of an id as the vocabulary writes it, and the bytes that it stands for.
  token(id) {
    return this.vocab[id] ?? `[${id}]`;
  }
  bytes(id) {
    return Uint8Array.from(this.vocab[id] ?? "", (letter) => BYTE_OF.get(letter));
  }

  decode(ids, { special = false } = {}) {
    return LENIENT.decode(Uint8Array.from(ids.filter((id) => special || !this.special.has(id)).flatMap((id) => [...this.bytes(id)])));
  }

  // The text of one token; bytes that are no whole character are written as \xe4.
  piece(id) {
    return (this.names[id] ??= nameOf(this.bytes(id)));
  }

  // A token as a view has it: zoo.inspect.trace_view.view.TraceToken.
  describe(id, origin = "prompt") {
    const bytes = this.bytes(id), token = this.token(id), special = this.special.has(id) || this.vocab[id] === undefined;
    return { id, token, text: special ? token : LENIENT.decode(bytes), bytes: Array.from(bytes, hex).join(""), special, origin };
  }
}
function nameOf(bytes) {
  const text = LENIENT.decode(bytes);
  if (!text.includes("\ufffd")) return text;
  const whole = (size) => { try { return STRICT.decode(bytes.subarray(at, at + size)); } catch { return ""; } };
  let name = "", at = 0;
  while (at < bytes.length) {
    const size = [1, 2, 3, 4].find(whole);
    name += size ? whole(size) : `\\x${hex(bytes[at])}`;
    at += size ?? 1;
  }
  return name;
}
const hex = (byte) => byte.toString(16).padStart(2, "0");

// The parts of a text that a pattern finds, and those between them.
function parts(text, pattern) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) found.push({ part: text.slice(end, match.index), found: false });
    if (match[0]) found.push({ part: match[0], found: true });
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ part: text.slice(end), found: false });
  return found;
}
