// One answer of a model: its request, what the stream brings, and its times.

import { events } from "./api.js";

// The same of both endpoints: chat completions, and completions for a model that does not chat.
const ENDPOINTS = {
  chat: {
    path: "v1/chat/completions",
    input: (messages) => ({ messages }),
    logprobs: (count) => ({ logprobs: true, top_logprobs: count }),
    delta: (choice) => choice.delta ?? {},
    tokens: (logprobs) => logprobs.content ?? [],
  },
  text: {
    path: "v1/completions",
    input: (messages) => ({ prompt: messages.at(-1).content }),
    logprobs: (count) => ({ logprobs: count }),
    delta: (choice) => ({ content: choice.text }),
    tokens: (logprobs) =>
      logprobs.tokens.map((token, index) => {
        const top = Object.entries(logprobs.top_logprobs?.[index] ?? {});
        return {
          token,
          logprob: logprobs.token_logprobs[index],
          top_logprobs: top.map(([token, logprob]) => ({ token, logprob })),
        };
      }),
  },
};

// Before a model is loaded the server may not know whether it chats: it is taken to.
export function endpointOf(model) {
  return ENDPOINTS[model.zoo.chat === false ? "text" : "chat"];
}

export class Answer {
  constructor(model) {
    Object.assign(this, { model, content: "", thinking: "", calls: [], tokens: [] });
    Object.assign(this, { usage: null, finish: null, error: null, stopped: false, running: true });
  }

  // Reads the whole answer, and calls `changed` after each event; an error becomes `error`. With `alternatives`, each
  // token comes with the log-probabilities of that many. An aborted signal stops it.
  async read({ messages, settings, signal, changed, alternatives = 0 }) {
    const endpoint = endpointOf(this.model);
    const body = {
      model: this.model.id,
      ...endpoint.input(messages),
      ...settings,
      stream: true,
      stream_options: { include_usage: true },
      ...(alternatives && endpoint.logprobs(alternatives)),
    };
    const begun = performance.now();
    try {
      for await (const event of events(endpoint.path, body, signal)) {
        this.add(event, endpoint);
        if (this.firstAfter === undefined && this.begun) this.firstAfter = performance.now() - begun;
        changed();
      }
    } catch (error) {
      if (error.name === "AbortError") this.stopped = true;
      else this.error = error;
    }
    this.took = performance.now() - begun;
    this.running = false;
    changed();
  }

  get begun() {
    return Boolean(this.content || this.thinking || this.calls.length || this.tokens.length);
  }

  // Whether it is nothing that a conversation can go on from.
  get failed() {
    return Boolean(this.error) || !(this.running || this.begun);
  }

  // Tokens a second after the first; undefined when fewer than two were generated.
  get rate() {
    const later = (this.usage?.completion_tokens ?? 0) - 1;
    return later > 0 && this.took > this.firstAfter ? (later * 1000) / (this.took - this.firstAfter) : undefined;
  }

  add(event, endpoint) {
    this.usage = event.usage ?? this.usage;
    const choice = event.choices?.[0];
    if (!choice) return;
    const delta = endpoint.delta(choice);
    this.content += delta.content ?? "";
    this.thinking += delta.reasoning_content ?? "";
    this.finish = choice.finish_reason ?? this.finish;
    for (const part of delta.tool_calls ?? []) this.addCall(part);
    for (const token of choice.logprobs ? endpoint.tokens(choice.logprobs) : [])
      this.tokens.push({ ...token, thinking: Boolean(delta.reasoning_content) });
  }

  addCall({ index = 0, id, function: part = {} }) {
    const call = (this.calls[index] ??= { id, type: "function", function: { name: "", arguments: "" } });
    call.function.name += part.name ?? "";
    call.function.arguments += part.arguments ?? "";
  }

  // As a message of the conversation.
  get message() {
    return {
      role: "assistant",
      content: this.content,
      ...(this.thinking && { reasoning_content: this.thinking }),
      ...(this.calls.length && { tool_calls: this.calls }),
    };
  }
}
