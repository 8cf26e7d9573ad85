// openai-node.
import { createRequire } from "node:module";
import { FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engineBusy, errorOf, tell } from "./asking.mjs";

// From where the packages were installed, which is not beside this file.
const { OpenAI } = createRequire(`${process.env.PACKAGES}/`)("openai");
const TOOL = { type: "function", function: { name: "weather", parameters: { type: "object" } } };

const client = (url = URL, apiKey = KEY, maxRetries = 0) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries });

const asked = (prompt, more) => ({
  model: MODEL,
  messages: [{ role: "user", content: prompt }],
  ...more,
});

async function whole(prompt, more = {}, at = client()) {
  return (await at.chat.completions.create(asked(prompt, more))).choices[0].message.content;
}

async function streamed(prompt, more = {}) {
  const seen = { text: "", reasoning: "", tool: "", end: null, tokens: null };
  const chunks = await client().chat.completions.create(asked(prompt, { stream: true, ...more }));
  for await (const chunk of chunks) {
    seen.tokens = chunk.usage?.prompt_tokens ?? seen.tokens;
    for (const { delta, finish_reason } of chunk.choices) {
      seen.text += delta.content ?? "";
      seen.reasoning += delta.reasoning_content ?? "";
      seen.end = finish_reason ?? seen.end;
      for (const { function: called } of delta.tool_calls ?? []) {
        seen.tool += (called.name ?? "") + (called.arguments ?? "");
      }
    }
  }
  return seen;
}

const models = [];
for await (const model of client().models.list()) models.push(model.id);

tell({
  models,
  waited: (await engineBusy(URL, () => streamed(SAY.talk))).text,
  stream: await streamed(SAY.talk, { tools: [TOOL], stream_options: { include_usage: true } }),
  whole: await whole(SAY.plain),
  retried: await engineBusy(FULL_URL, () => whole(SAY.plain, {}, client(FULL_URL, KEY, 2))),
  errors: {
    key: await errorOf(() => whole(SAY.plain, {}, client(URL, "wrong"))),
    model: await errorOf(() => whole(SAY.plain, { model: "gpt-4" })),
    value: await errorOf(() => whole(SAY.plain, { max_tokens: -1 })),
    length: await errorOf(() => whole(TOO_LONG)),
    limit: await errorOf(() => whole(SAY.limit)),
    busy: await errorOf(() => whole(SAY.busy, {}, client(URL, KEY, 1))),
    cut: await errorOf(() => streamed(SAY.cut)),
    lost: await errorOf(() => streamed(SAY.lost)),
  },
});
