// The page: settings become requests, and answers a text with its branches.

import { Branches } from "./branches.js";
import * as client from "./client.js";
import { Controls } from "./controls.js";
import { asCurl, asPython, asRust } from "./copy.js";
import { legend } from "./heat.js";
import { difference, Pane, result, textOf } from "./pane.js";
import * as popover from "./popover.js";
import { examples, fromHash, samples, toHash, toRequest } from "./settings.js";
import { count, element, number, visible } from "./text.js";

const find = (id) => document.getElementById(id);
const ROOT = { parent: null, past: [] };

let state = fromHash(location.hash);
let server = { version: "", models: [], properties: {} };
// What the server tells of the chosen model.
let model = { id: "", hasAssistant: false, file: {}, opened: {} };
// The run that the page shows, and how the next one hangs on others; `running` stops one.
let current = null;
let stem = ROOT;
let running = null;
let said = null;
const tokens = new Map();

const tell = (text) => (find("told").textContent = visible(text));

const prompt = element("textarea", { id: "prompt", spellcheck: false, placeholder: "Write the beginning of a text", "aria-label": "Prompt" });
const panes = ["a", "b"].map((name) => {
	const lead = element("div.para", element("span.said"), ...(name === "a" ? [prompt] : []));
	return new Pane(find("pane-" + name), lead, { branch, measure, tell, opened, started });
});
const controls = ["a", "b"].map((name) => new Controls(find("side-" + name), name, changed));
const branches = new Branches(find("branches"), visit);

// Shows a message, or none.
function notice(text) {
	find("notice").hidden = text === "";
	find("notice").textContent = visible(text);
}

// Writes the address: the history has an entry for each run, and one for what is set after it.
function address(run) {
	const hash = "#" + toHash(state);
	const { run: shown = null } = history.state ?? {};
	const isNew = hash !== location.hash && shown !== null && shown !== run?.id;
	if (run) run.hash = hash;
	document.body.classList.toggle("changed", !run);
	history[isNew ? "pushState" : "replaceState"]({ run: run?.id ?? null }, "", hash);
}

function changed() {
	state.at = -1;
	if ("#" + toHash(state) !== location.hash) address();
	render();
}

// To look in another way makes no other run.
function looked() {
	address(history.state?.run === current?.id ? current : undefined);
	render();
}

function begun() {
	Object.assign(state, { ids: null, chosen: 0 });
	stem = ROOT;
	changed();
}

// Shows a run, or an address without one.
function show(run) {
	popover.hide();
	state = fromHash(run?.hash ?? location.hash);
	current = run;
	stem = run ?? ROOT;
	panes.forEach((pane, index) => pane.show(run?.sides[index] ?? result("")));
	if (run?.sides[1]) for (const { heat } of panes) heat.look({ differs: difference(...run.sides) });
	notice(run?.notice ?? "");
	document.body.classList.remove("changed");
	choose();
	render();
	branches.render(current);
}

function visit(run) {
	if (running || run === current) return;
	history.pushState({ run: run.id }, "", run.hash);
	show(run);
}

// Brings the page in line with the state.
function render() {
	const isChat = state.mode === "chat";
	for (const name of ["prompt", "system", "seed", "colour"]) if (find(name).value !== String(state[name])) find(name).value = state[name];
	for (const name of ["locked", "compare"]) find(name).checked = state[name];
	find("chat").checked = isChat;
	for (const { lead } of panes) lead.firstChild.textContent = visible(state.prompt);
	if (said !== state.messages) {
		said = state.messages;
		const list = find("messages");
		list.replaceChildren(...said.map(({ role, content }) => element("li", element("b", role), " " + visible(content))));
		list.scrollTop = list.scrollHeight;
	}
	find("legend").replaceChildren(legend(state.colour));
	document.body.classList.toggle("comparing", state.compare);
	document.body.classList.toggle("chatting", isChat);
	find("seed").disabled = find("locked").disabled = !state.sides.slice(0, state.compare ? 2 : 1).some(samples);
	controls.forEach((one, index) => one.show(state.sides[index], model.file));
	for (const { heat } of panes) heat.look({ colour: state.colour });
}

// Asks until the server has room.
async function patiently(ask, signal) {
	for (;;) {
		try {
			return await ask();
		} catch (error) {
			if (!(error.wait > 0) && error.code !== "loading") throw error;
			for (let left = Math.max(1, Math.ceil(error.wait / 1000)); left > 0; left--) {
				notice(error.message + " — trying again in " + left + " s");
				await new Promise((resolve) => setTimeout(resolve, 1000));
				signal?.throwIfAborted();
			}
			notice("");
		}
	}
}

function askForKey() {
	find("key-form").hidden = false;
	notice(client.hasKey() ? "The server does not take this key." : "This server needs an API key.");
	find("key").focus();
}

const known = () => ({ ...model, model: server.models.length > 1 ? model.id : undefined, tokens });

// The ids of the words to hold, as within a text.
async function lookUp(side, signal) {
	for (const word of side.fields.force_words ?? []) {
		if (tokens.has(word)) continue;
		const body = { model: known().model, prompt: " " + word.trimStart(), add_special_tokens: false };
		tokens.set(word, (await client.json("tokenize", body, signal)).tokens);
	}
}

async function runSide(index, signal) {
	const [pane, side] = [panes[index], state.sides[index]];
	pane.mark("running", "waiting for the model…");
	try {
		await patiently(() => lookUp(side, signal), signal);
		const body = (pane.result.body = toRequest(state, side, known()));
		await patiently(() => client.stream(body, signal, (event) => pane.feed(event)), signal);
		await pane.drawn();
	} catch (error) {
		await pane.drawn();
		if (error.name === "AbortError") pane.end("stopped", "■ stopped after " + count(pane.first?.all ?? 0, "token"));
		else pane.fail(error.message);
		if (error.status === 401) askForKey();
		throw error;
	}
}

// Runs one side, or both one after the other.
async function run(keepsSeed = state.locked) {
	if (running) return;
	popover.hide();
	notice("");
	if (!keepsSeed && state.sides.some(samples)) state.seed = Math.floor(Math.random() * 1e6);
	if (state.model !== model.id) Object.assign(state, { model: model.id, fingerprint: "" });
	const sides = (state.compare ? ["A: ", "B: "] : [""]).map((label) => result(label, { past: stem.past, chosen: state.chosen }));
	const { parent, past } = stem;
	const made = branches.add({ parent, past, hash: "#" + toHash(state), sides, notice: "", prompt: state.prompt });
	current = made;
	address(made);
	panes.forEach((pane, index) => pane.show(sides[index] ?? result("")));
	running = new AbortController();
	const { signal } = running;
	document.body.classList.add("running");
	find("run").textContent = "Stop";
	render();
	branches.render(current);
	tell("Generating.");
	try {
		await runSide(0, signal);
		if (state.compare) {
			await runSide(1, signal);
			const pos = difference(...sides);
			for (const { heat } of panes) heat.look({ differs: pos });
			notice(pos < 0 ? "Both results are the same." : "The results differ from token " + (pos + 1) + " on.");
		} else if (state.mode === "chat" && !state.ids) {
			state.messages = [...sides[0].body.messages.filter(({ role }) => role !== "system"), { role: "assistant", content: textOf(sides[0]) }];
			state.prompt = "";
			address(made);
		}
	} catch (error) {
		// The pane shows it.
		if (error.name !== "AbortError" && !(error instanceof client.Failure)) throw error;
	} finally {
		running = null;
		document.body.classList.remove("running");
		find("run").textContent = "Run";
		made.notice = find("notice").textContent;
		if (history.state?.run === made.id) {
			render();
			branches.render(current);
			const span = panes[0].heat.spanAt(state.at);
			if (state.at >= 0 && span) panes[0].heat.show(span, "pin");
		} else show(branches.get(history.state?.run));
		if (!model.isLoaded) meet();
	}
}

// Goes on from another token: a branch of the run whose token it replaces.
function branch(base, past) {
	if (running) return;
	let parent = current;
	while (parent?.parent && past.length <= parent.past.length) parent = parent.parent;
	stem = { parent, past };
	Object.assign(state, { prompt: current.prompt, ids: [...base, ...past.map(({ id }) => id)], chosen: past.length, at: -1, locked: true });
	run();
	find("run").focus();
}

// The token whose alternatives are open belongs to the address.
function opened({ row, pos }) {
	if (running || row !== "0" || pos < 0) return;
	state.at = Number(pos);
	looked();
}

// The model may have changed since an address was made.
function started({ system_fingerprint: found }) {
	if (!running || !found || found === state.fingerprint || history.state?.run !== current.id) return;
	if (state.fingerprint) notice("This address is of another version of this model: the text may differ.");
	state.fingerprint = found;
	address(current);
}

// Runs the same without drafts; `pace` is the time for each token with them.
async function measure(pace) {
	const [side] = state.sides;
	side.strategy = samples(side) ? "sample" : "greedy_search";
	await run(true);
	const plain = panes[0].pace;
	notice("Measured gain: " + number(plain / pace) + " times as fast (" + [plain, pace].map((time) => Math.round(1 / time)).join(" → ") + " tokens/s)");
	current.notice = find("notice").textContent;
}

async function openTrace(file) {
	if (!file || running) return;
	if (file.size > 64 << 20) return notice("A trace may have 64 MB; this file has more.");
	let trace = null;
	try {
		trace = JSON.parse(await file.text());
	} catch {}
	if (trace?.schema_version !== 1 || !Array.isArray(trace.events)) return notice("This is no trace of rsgen.");
	const texts = trace.events.find((event) => event?.type === "prompt")?.texts;
	Object.assign(state, { compare: false, mode: "completion", ids: null, chosen: 0, at: -1 });
	if (Array.isArray(texts)) state.prompt = texts.filter((text) => typeof text === "string").join("");
	const sides = [result("Trace: ", { isTrace: true, events: trace.events })];
	const made = branches.add({ ...ROOT, hash: "", sides, notice: "A trace of " + trace.model, prompt: state.prompt });
	address(made);
	show(made);
}

function saveTrace() {
	const trace = { schema_version: 1, rsgen_version: server.version, model: model.id, events: panes[0].result.events };
	element("a", { download: "trace.json", href: URL.createObjectURL(new Blob([JSON.stringify(trace)])) }).click();
}

async function showCode() {
	const [side] = state.sides;
	try {
		await lookUp(side);
	} catch (error) {
		return notice(error.message);
	}
	const base = new URL(".", location.href).href;
	find("code").value = { Python: asPython, Rust: asRust, curl: asCurl }[find("language").value](state, side, { ...known(), base, hasKey: client.hasKey() });
	find("copied").textContent = "";
	if (!find("code-box").open) find("code-box").showModal();
}

// A page from another machine, without TLS, may not copy.
async function copyCode() {
	find("code").select();
	const copied = navigator.clipboard?.writeText(find("code").value) ?? Promise.reject();
	find("copied").textContent = await copied.then(() => "Copied.", () => "Press Ctrl+C to copy.");
}

function choose() {
	const { models } = server;
	const one = models.find(({ id }) => id === state.model) ?? models[0];
	if (!one) return;
	const meta = { ...models.find(({ id }) => id === one.parent)?.meta, ...one.meta };
	model = { id: one.id, isLoaded: one.status.value === "loaded", hasAssistant: meta.has_assistant ?? false, file: meta.generation_config ?? {}, opened: meta.opened ?? {} };
	find("models").value = one.id;
	find("model").textContent = one.max_model_len ? one.max_model_len.toLocaleString("en") + " tokens of context" : "its first run loads it; context unknown";
	find("chat").disabled = meta.has_chat_template === false;
	for (const side of controls) side.explain(server.properties, meta);
	find("examples").replaceChildren(...examples(model.hasAssistant).map(([name, hash]) => element("button.small", { onclick: () => start(hash) }, name)));
}

function start(hash) {
	if (running) return;
	state = fromHash(hash);
	stem = ROOT;
	run(true);
}

// Runs what an address says, on its seed. The bundled model begins with an example.
function arrive() {
	if (!location.hash) return model.opened.model === null && start(examples(false)[0][1]);
	const { mode, prompt, messages, model: asked } = state;
	if (mode === "chat" && !prompt && !messages.length) return;
	run(true);
	if (asked && asked !== model.id) notice("This address is of the model " + asked + ": the text of " + model.id + " differs.");
}

async function meet() {
	try {
		const isFirst = server.models.length === 0;
		const { info, paths } = await patiently(() => client.json("openapi.json"));
		const { data: models } = await patiently(() => client.json("v1/models"));
		const { properties } = paths["/rsgen/v1/generate"].post.requestBody.content["application/json"].schema;
		server = { version: info.version, models, properties };
		find("models").replaceChildren(...models.map(({ id }) => element("option", { value: id }, visible(id))));
		find("key-form").hidden = true;
		if (isFirst) notice("");
		choose();
		render();
		if (isFirst) arrive();
	} catch (error) {
		if (error.status === 401) askForKey();
		else notice(error.message);
	}
}

function listen() {
	const on = (id, kind, act) => find(id).addEventListener(kind, ({ target }) => act(target));
	const set = (id, kind, take, done = changed) => on(id, kind, (input) => {
		take(input);
		done();
	});
	on("run", "click", () => (running ? running.abort() : run()));
	set("prompt", "input", (input) => (state.prompt = input.value), begun);
	for (const [name, done] of [["system"], ["colour", looked]]) set(name, "input", (input) => (state[name] = input.value), done);
	for (const [name, done] of [["compare"], ["locked", looked]]) set(name, "change", (input) => (state[name] = input.checked), done);
	set("chat", "change", (input) => (state.mode = input.checked ? "chat" : "completion"), begun);
	set("models", "change", (input) => Object.assign(state, { model: input.value, fingerprint: "" }), () => {
		choose();
		changed();
	});
	set("forget", "click", () => (state.messages = []));
	set("seed", "change", (input) => {
		if (/^\d{1,15}$/.test(input.value)) Object.assign(state, { seed: Number(input.value), locked: true });
	});
	on("save", "click", saveTrace);
	on("open", "click", () => find("file").click());
	on("file", "change", (input) => {
		openTrace(input.files[0]);
		input.value = "";
	});
	on("show-code", "click", showCode);
	on("language", "change", showCode);
	on("copy", "click", copyCode);
	find("key-form").addEventListener("submit", (event) => {
		event.preventDefault();
		client.setKey(find("key").value.trim());
		find("key").value = "";
		meet();
	});
	addEventListener("keydown", (event) => {
		if (event.key === "Escape") running?.abort();
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
	});
	addEventListener("popstate", () => {
		if (running) return running.abort();
		show(branches.get(history.state?.run));
		// Somebody has given another address.
		if (!history.state) arrive();
	});
	addEventListener("dragover", (event) => event.preventDefault());
	addEventListener("drop", (event) => {
		event.preventDefault();
		openTrace(event.dataTransfer.files[0]);
	});
}

listen();
render();
meet();
