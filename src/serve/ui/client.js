// What the page asks of the server.

const KEY = "rsgen.key";

// An answer that is no success, or no answer at all.
export class Failure extends Error {
	constructor(message, details) {
		super(message);
		Object.assign(this, details);
	}
}

// Keeps the API key for this tab, until it is closed.
export const setKey = (key) => sessionStorage.setItem(KEY, key);
export const hasKey = () => sessionStorage.getItem(KEY) !== null;

async function ask(path, body, signal) {
	const headers = {};
	const key = sessionStorage.getItem(KEY);
	// Headers are bytes: a key of other letters cannot be valid.
	if (key) headers.authorization = "Bearer " + key.replace(/[^\x20-\x7e]/g, "?");
	const request = { headers, signal };
	if (body !== undefined) {
		headers["content-type"] = "application/json";
		Object.assign(request, { method: "POST", body: JSON.stringify(body) });
	}
	let response;
	try {
		response = await fetch(path, request);
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Failure("The server does not answer. Is it still running?");
	}
	if (response.ok) return response;
	const told = await response.json().catch(() => ({}));
	const { status } = response;
	const wait = Number(response.headers.get("retry-after-ms"));
	throw new Failure(told.error?.message ?? "The server answered " + status + ".", { status, code: told.error?.code, wait });
}

// The JSON that the server answers; without a body it is a GET.
export const json = async (path, body, signal) => (await ask(path, body, signal)).json();

// Sends a request, and gives each event of its stream to `receive`.
export async function stream(body, signal, receive) {
	const response = await ask("rsgen/v1/generate", body, signal);
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	let seq = 0;
	let ended = false;
	for (;;) {
		const part = await reader.read().catch((error) => {
			if (error.name === "AbortError") throw error;
			return { done: true };
		});
		if (part.done) break;
		const lines = (rest + part.value).split("\n");
		rest = lines.pop();
		for (const line of lines) {
			if (!line.startsWith("data: ")) continue;
			const event = JSON.parse(line.slice(6));
			if (event.error) throw new Failure(event.error.message, { code: event.error.code });
			if (event.seq !== seq++) throw new Failure("An event of the stream is missing.");
			receive(event);
			ended = event.type === "finish";
		}
	}
	if (!ended) throw new Failure("The connection broke before the end. Is the server still running?");
}
