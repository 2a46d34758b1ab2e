// Requests to the server that this page came from: JSON, errors, and streams of server-sent events.

import { keep, say } from "./words.js";

const KEY = "zoo-key";

// `message` is the server's own line; `retryAfter` the seconds of a Retry-After, if there is one.
export class ServerError extends Error {
  constructor(message, retryAfter = null) {
    super(message);
    this.retryAfter = retryAfter;
  }
}

export function useKey(key) {
  keep("sessionStorage", KEY, key);
}

// A response of 2xx; ServerError for any other. A 401 makes the event "zoo-key" of the window.
export async function request(path, options = {}) {
  const key = keep("sessionStorage", KEY);
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : new ServerError(say("unreachable"));
  }
  if (response.ok) return response;
  if (response.status === 401) window.dispatchEvent(new Event("zoo-key"));
  const body = await response.json().catch(() => null);
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  const message = body?.error?.message ?? `${response.status} ${response.statusText}`;
  throw new ServerError(message, Number.isNaN(seconds) ? null : seconds);
}

// The JSON of each event of a stream, until [DONE]; ServerError for an error in it, or where it ends without [DONE].
export async function* events(path, body, signal) {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new ServerError(say("cut"));
    });
    if (done) throw new ServerError(say("cut"));
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice("data:".length).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(event.error.message);
      yield event;
    }
  }
}
