// What the scripts of all Node clients share; as asking.py.
export const URL = process.env.GATEWAY_URL;
export const FULL_URL = process.env.FULL_GATEWAY_URL;
export const KEY = process.env.GATEWAY_KEY;
export const SAY = JSON.parse(process.env.SAY);
export const MODEL = "chat";
export const TOO_LONG = "word ".repeat(50_000);

export const tell = (seen) => console.log(JSON.stringify(seen));

export async function errorOf(ask) {
  try {
    return { is: [], status: null, says: `no error but ${JSON.stringify(await ask())}` };
  } catch (error) {
    const names = [];
    for (let kind = error.constructor; kind.name; kind = Object.getPrototypeOf(kind)) {
      names.push(kind.name);
    }
    return { is: names, status: error.status ?? null, says: String(error) };
  }
}

export async function engineBusy(url, ask) {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${KEY}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: MODEL,
      messages: [{ role: "user", content: SAY.occupy }],
      stream: true,
    }),
  });
  const reader = answer.body.getReader();
  await reader.read();
  const reading = (async () => {
    while (!(await reader.read()).done);
  })();
  const got = await ask();
  await reading;
  return got;
}
