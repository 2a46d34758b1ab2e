// The settings of an endpoint as fields of a form, read from the server's OpenAPI description.

import { make, say, word } from "./words.js";

// What the page sets itself, and what it shows first, in this order.
const OWN = ["model", "messages", "prompt", "stream", "stream_options", "n", "logprobs", "top_logprobs"];
const COMMON = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "stop"];

// The properties of the body of POST `/{path}`, without those that the page sets: [name, schema], common ones first.
export function propertiesOf(openapi, path) {
  const { schema } = openapi.paths[`/${path}`].post.requestBody.content["application/json"];
  const place = ([name]) => (COMMON.includes(name) ? COMMON.indexOf(name) : COMMON.length);
  return Object.entries(resolved(schema, openapi).properties)
    .map(([name, property]) => [name, resolved(property, openapi)])
    .filter(([name, property]) => !OWN.includes(name) && !property.deprecated)
    .filter(([, property]) => summary(property, openapi).choices?.length !== 1) // of one value there is no choice
    .sort((one, other) => place(one) - place(other));
}

export function isCommon(name) {
  return COMMON.includes(name);
}

function resolved(schema, openapi) {
  if (!schema.$ref) return schema;
  const target = schema.$ref.slice(2).split("/").reduce((value, key) => value[key], openapi);
  return { ...resolved(target, openapi), ...schema, $ref: undefined };
}

// What a property may be: `types`, `choices` if these are all, and the bounds of a number.
function summary(schema, openapi) {
  const variants = variantsOf(schema, openapi);
  const types = new Set();
  for (const { type, items, enum: choices = [] } of variants)
    for (const one of type ? [type].flat() : choices.length ? choices.map((choice) => typeof choice) : ["any"])
      if (one === "array") types.add(resolved(items ?? {}, openapi).type === "string" ? "strings" : "array");
      else if (one !== "null") types.add(one);
  const choices = variants.map(({ type, enum: choices }) => choices ?? (type === "boolean" ? [true, false] : null));
  const all = choices.every(Boolean) ? [...new Set(choices.flat())].filter((one) => one !== null) : null;
  return { types, choices: all, bounds: variants.length === 1 ? variants[0] : {} };
}

function variantsOf(schema, openapi) {
  const { anyOf, oneOf = anyOf, ...rest } = resolved(schema, openapi);
  if (oneOf) return oneOf.flatMap((variant) => variantsOf(variant, openapi));
  if (rest.type === "null") return [];
  return [{ ...rest, enum: rest.enum ?? ("const" in rest ? [rest.const] : undefined) }];
}

// A field: its `element`, its `name`, and `value()`, undefined where nothing was set.
export function field([name, schema], openapi, kept) {
  const { types, bounds, choices } = summary(schema, openapi);
  const only = (...allowed) => [...types].every((type) => allowed.includes(type));
  let control, read;
  if (choices) {
    const options = choices.map((value) => make("option", { value: JSON.stringify(value) }, String(value)));
    control = make("select", {}, word(make("option", { value: "" }), "text", "unset"), ...options);
    read = (text) => JSON.parse(text);
  } else if (only("number", "integer")) {
    const step = types.has("number") ? "any" : 1;
    const min = bounds.minimum ?? bounds.exclusiveMinimum, max = bounds.maximum ?? bounds.exclusiveMaximum;
    control = make("input", { type: "number", step, min, max });
    read = Number;
  } else if (only("string", "strings") && types.has("strings")) {
    control = word(make("textarea", { rows: 1 }), "hint", "lines");
    const unquoted = (line) => (/^".*"$/.test(line) ? JSON.parse(line) : line);
    read = (text) => text.split("\n").filter(Boolean).map(unquoted);
  } else if (only("string")) {
    control = make("input", { type: "text" });
    read = (text) => text;
  } else {
    control = make("textarea", { rows: 1, placeholder: "JSON" });
    read = (text) => (types.has("string") && !/^\s*[[{"]/.test(text) ? text : JSON.parse(text));
  }
  const { default: preset, description } = schema;
  if (preset !== undefined && preset !== null && !control.placeholder && control.tagName === "INPUT")
    control.placeholder = String(preset);
  control.id = `setting-${field.count++}`;
  const about = make("small", { id: `${control.id}-about`, lang: "en" }, description ?? "");
  if (description) control.setAttribute("aria-describedby", about.id);
  control.value = kept ?? "";
  const check = () => control.setCustomValidity(valid(read, control.value) ? "" : say("no_json"));
  control.addEventListener("input", check);
  const label = make("label", { for: control.id, title: description }, make("code", {}, name));
  const element = make("div", { class: "field" }, label, control, about);
  return { name, control, element, value: () => set(control, read) };
}
field.count = 0; // makes ids unique: two panels have the same fields

function set(control, read) {
  return control.value === "" ? undefined : read(control.value);
}

function valid(read, text) {
  try {
    return text === "" || read(text) !== undefined;
  } catch {
    return false;
  }
}
