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
  const types = new Set(variants.flatMap((variant) => typesOf(variant, openapi)));
  const choices = variants.map(({ type, enum: choices }) => choices ?? (type === "boolean" ? [true, false] : null));
  const all = choices.every(Boolean) ? [...new Set(choices.flat())].filter((one) => one !== null) : null;
  return { types, choices: all, bounds: variants.length === 1 ? variants[0] : {} };
}

// "strings" is a list of strings, "any" what has no type.
function typesOf({ type = [], items = {}, enum: choices }, openapi) {
  if (choices) return choices.map((choice) => typeof choice);
  const types = [type].flat().filter((one) => one !== "null");
  if (!types.length) return ["any"];
  const list = resolved(items, openapi).type === "string" ? "strings" : "array";
  return types.map((one) => (one === "array" ? list : one));
}

function variantsOf(schema, openapi) {
  const { anyOf, oneOf = anyOf, ...rest } = resolved(schema, openapi);
  if (oneOf) return oneOf.flatMap((variant) => variantsOf(variant, openapi));
  if (rest.type === "null") return [];
  return [{ ...rest, enum: rest.enum ?? ("const" in rest ? [rest.const] : undefined) }];
}

// The title of a property's group: the key of a text and its values, as `word` takes them.
function groupOf({ "x-group": title = "request", "x-strategy": name }) {
  if (name) return ["strategy_group", { name }];
  return [`${title.toLowerCase().replaceAll(/\W+/g, "_")}_group`];
}

// A field of a form: its `name`, its `group`, its `control`, its `element`, and `value()`, undefined where nothing was set.
export function field([name, schema], openapi, kept) {
  const { control, read } = controlOf(summary(schema, openapi));
  const { default: preset, description } = schema;
  if (control.tagName === "INPUT") control.placeholder = preset ?? "";
  control.id = `setting-${field.count++}`;
  control.value = kept ?? "";
  const check = () => control.setCustomValidity(isValid(read, control.value) ? "" : say("no_json"));
  control.addEventListener("input", check);
  const about = make("small", { id: `${control.id}-about`, lang: "en" }, description ?? "");
  if (description) control.setAttribute("aria-describedby", about.id);
  const label = make("label", { for: control.id, title: description }, make("code", {}, name));
  const element = make("div", { class: "field" }, label, control, about);
  const group = groupOf(schema);
  return { name, group, control, element, value: () => (control.value === "" ? undefined : read(control.value)) };
}
field.count = 0; // makes ids unique: several panels have the same fields

// The control for values of such a kind, and the function that reads its text as one.
function controlOf({ types, bounds, choices }) {
  const only = (...allowed) => [...types].every((type) => allowed.includes(type));
  if (choices) {
    const options = choices.map((value) => make("option", { value: JSON.stringify(value) }, String(value)));
    const unset = word(make("option", { value: "" }), "text", "unset");
    return { control: make("select", {}, unset, ...options), read: JSON.parse };
  }
  if (only("number", "integer")) {
    const min = bounds.minimum ?? bounds.exclusiveMinimum, max = bounds.maximum ?? bounds.exclusiveMaximum;
    const step = types.has("number") ? "any" : 1;
    return { control: make("input", { type: "number", min, max, step }), read: Number };
  }
  if (only("string")) return { control: make("input", { type: "text" }), read: String };
  if (only("string", "strings")) {
    const unquoted = (line) => (/^".*"$/.test(line) ? JSON.parse(line) : line);
    const read = (text) => text.split("\n").filter(Boolean).map(unquoted);
    return { control: word(make("textarea", { rows: 1 }), "hint", "lines"), read };
  }
  const read = (text) => (types.has("string") && !/^\s*[[{"]/.test(text) ? text : JSON.parse(text));
  return { control: make("textarea", { rows: 1, placeholder: "JSON" }), read };
}

function isValid(read, text) {
  try {
    if (text) read(text);
    return true;
  } catch {
    return false;
  }
}
