// The page: settings become requests, and answers pictures.

import * as client from "./client.js";
import { Controls } from "./controls.js";
import { asCurl, asPython, asRust } from "./copy.js";
import { legend } from "./heat.js";
import { difference, Pane } from "./pane.js";
import * as popover from "./popover.js";
import { EXAMPLES, fromHash, samples, toHash, toRequest } from "./settings.js";
import { count, element, visible } from "./text.js";

const find = (id) => document.getElementById(id);
const languages = document.querySelectorAll("[data-language]");
const MAX_TRACE = 64 << 20;

let state = fromHash(location.hash);
let server = { model: "", version: "", hasAssistant: false, file: {}, opened: {} };
let running = null;
let ran = null;
// The messages that the page shows.
let said = null;
// The ids of the words to hold.
const tokens = new Map();
// What the latest runs showed, by their addresses.
const results = new Map();

const tell = (text) => (find("told").textContent = visible(text));
const blank = () => ["a", "b"].map((name) => new Pane(find("pane-" + name).cloneNode(), { branch, measure, tell }));
let panes = [];
show(blank());
const controls = ["a", "b"].map((name) => new Controls(find("controls-" + name), name, changed));

const drawSeed = () => Math.floor(Math.random() * 1e6);

// Shows other panes.
function show(next) {
	panes = next;
	for (const pane of next) {
		find(pane.root.id).replaceWith(pane.root);
		pane.setColour(state.colour);
	}
}

// Shows what the run of this address showed, or nothing.
function revisit() {
	popover.hide();
	const [said, kept] = results.get(ran) ?? ["", blank()];
	show(kept);
	notice(said);
	render();
}

// Shows a message above the results, or none.
function notice(text) {
	find("notice").hidden = text === "";
	find("notice").textContent = visible(text);
}

// Somebody has changed a setting. The browser's history keeps the settings of each run.
function changed() {
	const hash = "#" + toHash(state);
	if (hash !== location.hash) history[location.hash === ran ? "pushState" : "replaceState"](null, "", hash);
	render();
}

// Brings the page in line with the state.
function render() {
	const isChat = state.mode === "chat";
	for (const name of ["prompt", "system", "seed", "colour"]) find(name).value = state[name];
	for (const name of ["locked", "compare"]) find(name).checked = state[name];
	find("prompt-label").textContent = isChat ? "Your message" : "Prompt";
	find("mode-" + state.mode).checked = true;
	find("conversation").hidden = !isChat;
	if (said !== state.messages) {
		said = state.messages;
		const list = find("messages");
		list.replaceChildren(...said.map(({ role, content }) => element("li", element("b", role), " " + visible(content))));
		list.scrollTop = list.scrollHeight;
	}
	find("forget").hidden = state.messages.length === 0;
	find("legend").replaceChildren(legend(state.colour));
	find("branched").hidden = state.ids === null;
	find("prompt").disabled = state.ids !== null;
	document.body.classList.toggle("comparing", state.compare);
	find("side-b").hidden = find("pane-b").hidden = !state.compare;
	find("seed-off").hidden = state.sides.slice(0, state.compare ? 2 : 1).some(samples);
	controls.forEach((one, index) => one.show(state.sides[index], server.file));
	panes.forEach((pane) => pane.setColour(state.colour));
}

// Asks until the server has room, and counts down meanwhile.
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

function needsKey(error) {
	if (error.status !== 401) return false;
	find("key-form").hidden = false;
	notice(client.hasKey() ? "The server does not take this key." : "This server needs an API key.");
	find("key").focus();
	return true;
}

// The ids of the words to hold, as within a text.
async function lookUp(side, signal) {
	for (const word of side.fields.force_words ?? []) {
		if (tokens.has(word)) continue;
		const prompt = " " + word.trimStart();
		tokens.set(word, (await client.json("tokenize", { prompt, add_special_tokens: false }, signal)).tokens);
	}
}

async function runSide(index, signal) {
	const [pane, side] = [panes[index], state.sides[index]];
	pane.clear(state.compare ? "AB"[index] : "");
	pane.end("running", "waiting for the model…");
	try {
		await patiently(() => lookUp(side, signal), signal);
		pane.body = toRequest(state, side, { hasAssistant: server.hasAssistant, tokens });
		await patiently(() => client.stream(pane.body, signal, (event) => pane.feed(event)), signal);
		await pane.drawn();
	} catch (error) {
		await pane.drawn();
		if (error.name === "AbortError") pane.end("stopped", "■ stopped after " + count(pane.first?.all ?? 0, "token"));
		else pane.fail(error.message);
		needsKey(error);
		throw error;
	}
}

// Runs what is set: one side, or both one after the other, so that neither slows the other.
async function run() {
	if (running) return;
	popover.hide();
	notice("");
	if (!state.locked && state.sides.some(samples)) state.seed = drawSeed();
	changed();
	const hash = (ran = location.hash);
	if (panes[0].root.dataset.state) show(blank());
	running = new AbortController();
	const { signal } = running;
	document.body.classList.add("running");
	find("run").textContent = "Stop";
	find("examples").open = false;
	if (matchMedia("(max-width: 60rem)").matches) find("results").scrollIntoView();
	tell("Generating.");
	try {
		await runSide(0, signal);
		if (state.compare) {
			await runSide(1, signal);
			const pos = difference(...panes);
			panes.forEach((pane) => pos !== null && pane.heat.mark(pos));
			notice(pos === null ? "Both results are the same." : "The results differ from token " + (pos + 1) + " on.");
		} else if (state.mode === "chat" && !state.ids) {
			state.messages = [...panes[0].body.messages.filter(({ role }) => role !== "system"), { role: "assistant", content: panes[0].text }];
			state.prompt = "";
			changed();
		}
	} catch (error) {
		// The pane shows it.
		if (error.name !== "AbortError" && !(error instanceof client.Failure)) throw error;
	} finally {
		running = null;
		document.body.classList.remove("running");
		find("run").textContent = "Run";
		results.set(hash, [find("notice").textContent, panes]);
		if (results.size > 8) results.delete(results.keys().next().value);
		if (ran !== hash) revisit();
	}
}

function branch(ids) {
	if (running) return;
	Object.assign(state, { ids, locked: true });
	run();
	find("run").focus();
}

// Seconds for each token of the same request without drafts.
async function measure({ body }) {
	if (running) throw new Error("Something else runs.");
	const plain = { ...body, strategy: body.do_sample ? "sample" : "greedy_search", use_assistant: false };
	for (const name of Object.keys(plain)) if (/assistant_[tc]|prompt_lookup|matching|do_sample/.test(name)) delete plain[name];
	const pane = new Pane(element("div"), { tell: () => {} });
	await client.stream(plain, undefined, (event) => event.type === "token" && pane.clock(event));
	return pane.pace;
}

function openTrace(text) {
	if (running) return;
	let trace = null;
	try {
		trace = JSON.parse(text);
	} catch {}
	if (trace?.schema_version !== 1 || !Array.isArray(trace.events)) return notice("This is no trace of rsgen.");
	notice("A trace of " + trace.model);
	state.compare = false;
	show(blank());
	render();
	const [pane] = panes;
	pane.clear("Trace");
	pane.isTrace = true;
	for (const event of trace.events) pane.feed(event);
	pane.root.scrollIntoView();
}

async function openFile(file) {
	if (!file) return;
	if (file.size > MAX_TRACE) notice("A trace may have 64 MB; this file has more.");
	else openTrace(await file.text());
}

function saveTrace() {
	const trace = { schema_version: 1, rsgen_version: server.version, model: server.model, events: panes[0].events };
	const link = element("a", { download: "trace.json", href: URL.createObjectURL(new Blob([JSON.stringify(trace)], { type: "application/json" })) });
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function showCode(language) {
	const [side] = state.sides;
	try {
		await lookUp(side);
	} catch (error) {
		return notice(error.message);
	}
	const writer = { python: asPython, rust: asRust, curl: asCurl }[language];
	const base = new URL(".", location.href).href;
	find("code").value = writer(state, side, { opened: server.opened, tokens, base, hasKey: client.hasKey(), hasAssistant: server.hasAssistant });
	find("copied").textContent = "";
	if (!find("code-box").open) find("code-box").showModal();
	for (const button of languages) button.ariaPressed = button.dataset.language === language;
}

async function copyCode() {
	find("code").select();
	// A page from another machine, without TLS, may not.
	const copied = navigator.clipboard?.writeText(find("code").value) ?? Promise.reject();
	find("copied").textContent = await copied.then(() => "Copied.", () => "Press Ctrl+C to copy.");
}

// Asks which model it is, as soon as it is loaded.
async function meet() {
	try {
		const { info, paths } = await patiently(() => client.json("openapi.json"));
		const { data } = await client.json("v1/models");
		const { properties } = paths["/rsgen/v1/generate"].post.requestBody.content["application/json"].schema;
		const { id, meta, max_model_len: most } = data[0];
		server = { model: id, version: info.version, hasAssistant: meta.has_assistant, file: meta.generation_config ?? {}, opened: meta.opened ?? {} };
		find("model").textContent = visible(id) + " · " + most.toLocaleString("en") + " tokens of context";
		find("mode-chat").disabled = !meta.has_chat_template;
		for (const one of controls) {
			one.explain(properties, meta.strategies);
			const option = one.strategy.querySelector("[value=assisted_decoding]");
			option.disabled = !meta.has_assistant;
			option.textContent = "assisted decoding" + (meta.has_assistant ? "" : " (start with --assistant)");
		}
		find("key-form").hidden = true;
		notice("");
		render();
	} catch (error) {
		if (!needsKey(error)) notice(error.message);
	}
}

function listen() {
	const on = (id, kind, act) => find(id).addEventListener(kind, act);
	const set = (id, kind, take) => on(id, kind, (event) => {
		take(event.target);
		changed();
	});
	on("run", "click", () => (running ? running.abort() : run()));
	for (const name of ["prompt", "system", "colour"]) set(name, "input", (input) => (state[name] = input.value));
	for (const name of ["locked", "compare"]) set(name, "change", (input) => (state[name] = input.checked));
	for (const mode of ["completion", "chat"]) set("mode-" + mode, "change", () => Object.assign(state, { mode, ids: null }));
	set("forget", "click", () => (state.messages = []));
	set("unbranch", "click", () => (state.ids = null));
	set("seed", "change", (input) => {
		if (/^\d{1,15}$/.test(input.value)) Object.assign(state, { seed: Number(input.value), locked: true });
	});
	set("dice", "click", () => (state.seed = drawSeed()));
	on("save", "click", saveTrace);
	on("open", "click", () => find("file").click());
	on("file", "change", (event) => {
		openFile(event.target.files[0]);
		event.target.value = "";
	});
	on("show-code", "click", () => showCode("python"));
	on("copy", "click", copyCode);
	on("close", "click", () => find("code-box").close());
	for (const button of languages) button.onclick = () => showCode(button.dataset.language);
	on("key-form", "submit", (event) => {
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
		state = fromHash(location.hash);
		ran = results.has(location.hash) ? location.hash : null;
		if (running) running.abort();
		else revisit();
	});
	addEventListener("dragover", (event) => event.preventDefault());
	addEventListener("drop", (event) => {
		event.preventDefault();
		openFile(event.dataTransfer.files[0]);
	});
	const start = (hash) => {
		if (running) return;
		state = fromHash(hash);
		run();
	};
	find("example-list").append(...EXAMPLES.map(([name, hash]) => element("button", { onclick: () => start(hash) }, name)));
}

listen();
render();
meet();
