// Asks a server by Ollama's package and by the AI SDK with each of its providers; prints what came as JSON.
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai'
import { Ollama } from 'ollama'
import { z } from 'zod'

globalThis.AI_SDK_LOG_WARNINGS = false // it writes them where the answer goes

const { url, river, question, weather: declared, schema, result } = JSON.parse(process.argv[2])
const model = 'chatter'
const seen = {}

const ollama = new Ollama({ host: url })
const answer = await ollama.chat({ model, messages: [river] })
const parts = []
for await (const part of await ollama.chat({ model, messages: [river], stream: true })) parts.push(part)
const called = await ollama.chat({ model, messages: [question], tools: [declared] })
const told = { role: 'tool', tool_name: 'weather', content: result }
const second = await ollama.chat({
  model,
  messages: [question, called.message, told],
  tools: [declared],
})
const formed = await ollama.chat({ model, messages: [river], format: schema, think: false })
const failure = await ollama.chat({ model: 'other', messages: [river] }).catch((error) => error)
seen.ollama = {
  text: answer.message.content,
  thinking: answer.message.thinking,
  streamed: parts.map((part) => part.message.content).join(''),
  parts: parts.length,
  calls: called.message.tool_calls.map((call) => call.function.arguments),
  afterTool: second.message.content,
  object: JSON.parse(formed.message.content),
  error: [failure.status_code, failure.message],
  models: (await ollama.list()).models.map((one) => one.name),
}

const compatible = createOpenAICompatible({
  name: 'zoo',
  baseURL: `${url}/v1`,
  apiKey: 'none',
  supportsStructuredOutputs: true,
})
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: 'none' })
const providers = {
  compatible: compatible(model),
  chat: openai.chat(model),
  responses: openai.responses(model),
  anthropic: createAnthropic({ baseURL: `${url}/v1`, apiKey: 'none' })(model),
}
const object = z.object({ city: z.enum(['Rome', 'Oslo']) })
const tools = {
  weather: tool({ description: 'What the weather will be.', inputSchema: object, execute: () => result }),
}
for (const [name, one] of Object.entries(providers)) {
  // Without `store: false` the Responses of a turn refer to items that a server has stored.
  const providerOptions = { openai: { store: false } }
  // Before an object this model, which has not learnt to write one, could think for as long as it may.
  const brief = {
    openai: { store: false, reasoningEffort: 'none', forceReasoning: true },
    zoo: { reasoningEffort: 'none' },
    anthropic: { thinking: { type: 'disabled' } },
  }
  const base = { model: one, maxRetries: 0, maxOutputTokens: 200, providerOptions }
  const whole = await generateText({ ...base, prompt: river.content })
  const stream = streamText({ ...base, prompt: river.content })
  let streamed = ''
  for await (const part of stream.textStream) streamed += part
  const used = await generateText({ ...base, prompt: question.content, tools, stopWhen: stepCountIs(2) })
  const forced = await generateText({
    ...base,
    prompt: question.content,
    tools: { weather: tool({ inputSchema: object }) },
    toolChoice: { type: 'tool', toolName: 'weather' },
  })
  const made = await generateObject({ ...base, providerOptions: brief, prompt: river.content, schema: object })
  seen[name] = {
    text: whole.text,
    streamed,
    afterTool: used.text,
    calls: used.steps[0].toolCalls.map((call) => call.input),
    forced: forced.toolCalls.map((call) => call.input),
    object: made.object,
  }
}
console.log(JSON.stringify(seen))
