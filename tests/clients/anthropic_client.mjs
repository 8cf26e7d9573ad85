// Anthropic's SDK for Node.
import { createRequire } from "node:module";
import { FULL_URL, KEY, MODEL, SAY, TOO_LONG, URL, engineBusy, errorOf, tell } from "./asking.mjs";

// From where the packages were installed, which is not beside this file.
const { Anthropic } = createRequire(`${process.env.PACKAGES}/`)("@anthropic-ai/sdk");
const TOOL = { name: "weather", input_schema: { type: "object" } };

const client = (baseURL = URL, apiKey = KEY, maxRetries = 0) =>
  new Anthropic({ baseURL, apiKey, maxRetries });

const asked = (prompt, more) => ({
  model: MODEL,
  max_tokens: 50,
  messages: [{ role: "user", content: prompt }],
  ...more,
});

async function whole(prompt, more = {}, at = client()) {
  return (await at.messages.create(asked(prompt, more))).content[0].text;
}

async function streamed(prompt, more = {}) {
  const stream = client().messages.stream(asked(prompt, more));
  let text = "";
  stream.on("text", (part) => (text += part));
  const message = await stream.finalMessage();
  const blocks = Object.fromEntries(message.content.map((block) => [block.type, block]));
  return {
    text,
    reasoning: blocks.thinking?.thinking ?? "",
    tool: blocks.tool_use.name + blocks.tool_use.input.place,
    end: message.stop_reason,
    tokens: message.usage.input_tokens,
  };
}

tell({
  waited: (await engineBusy(URL, () => streamed(SAY.talk))).text,
  stream: await streamed(SAY.talk, { tools: [TOOL] }),
  whole: await whole(SAY.plain),
  retried: await engineBusy(FULL_URL, () => whole(SAY.plain, {}, client(FULL_URL, KEY, 2))),
  errors: {
    key: await errorOf(() => whole(SAY.plain, {}, client(URL, "wrong"))),
    model: await errorOf(() => whole(SAY.plain, { model: "claude" })),
    value: await errorOf(() => whole(SAY.plain, { max_tokens: 0 })),
    length: await errorOf(() => whole(TOO_LONG)),
    limit: await errorOf(() => whole(SAY.limit)),
    busy: await errorOf(() => whole(SAY.busy, {}, client(URL, KEY, 1))),
    cut: await errorOf(() => streamed(SAY.cut)),
    lost: await errorOf(() => streamed(SAY.lost)),
  },
});
