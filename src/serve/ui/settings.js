// What can be set, and what each strategy uses of it; the state as an address and as a request.

const BEAMS = ["beam_search", "beam_sample", "group_beam_search", "constrained_beam_search"];
const DRAFTS = ["prompt_lookup", "assisted_decoding"];
const OPTIONAL = ["dola", ...DRAFTS];

export const STRATEGIES = ["greedy_search", "sample", ...BEAMS, "contrastive_search", ...OPTIONAL];

// Whether tokens are drawn, so that the seed counts.
export const samples = (side) =>
	["sample", "beam_sample"].includes(side.strategy) ||
	(OPTIONAL.includes(side.strategy) && side.fields.do_sample === true);

const always = () => true;
const isOneOf = (...names) => (side) => names.includes(side.strategy);
const hasBeams = isOneOf(...BEAMS);

const number = (name, least, most, step, standard, used, presets = {}) => ({ name, kind: "number", least, most, step, standard, used, presets });
const choice = (name, choices, used) => ({ name, kind: "choice", choices, standard: choices[0], used });
const text = (name, kind, used = always) => ({ name, kind, used });

const [groups, assisted, lookup] = ["group_beam_search", "assisted_decoding", "prompt_lookup"].map((name) => isOneOf(name));
const candidates = (side) => samples(side) || side.strategy === "contrastive_search";
const severalRows = isOneOf("sample", ...BEAMS);

// The fields, those that say most first: range, step and default. `used` tells whether a strategy uses it.
const LIST = [
	number("max_new_tokens", 1, 4096, 1, 40, always),
	number("num_beams", 2, 16, 1, 4, hasBeams),
	number("num_beam_groups", 2, 8, 1, 2, groups),
	number("diversity_penalty", 0, 5, 0.1, 1, groups),
	text("force_words", "words", isOneOf("constrained_beam_search")),
	number("length_penalty", -2, 4, 0.1, 1, hasBeams),
	choice("early_stopping", [false, true, "never"], hasBeams),
	number("penalty_alpha", 0, 1, 0.05, 0.6, isOneOf("contrastive_search")),
	choice("dola_layers", ["high", "low"], isOneOf("dola")),
	number("num_assistant_tokens", 1, 32, 1, 20, assisted),
	number("assistant_confidence_threshold", 0, 1, 0.05, 0.4, assisted),
	number("prompt_lookup_num_tokens", 1, 32, 1, 10, lookup),
	number("max_matching_ngram_size", 1, 10, 1, 2, lookup),
	choice("num_assistant_tokens_schedule", ["adaptive", "constant", "heuristic"], isOneOf(...DRAFTS)),
	text("do_sample", "check", isOneOf(...OPTIONAL)),
	number("temperature", 0.05, 3, 0.05, 1, samples),
	number("top_k", 0, 200, 1, 50, candidates, { contrastive_search: 4 }),
	number("top_p", 0, 1, 0.01, 1, samples),
	number("min_p", 0, 1, 0.01, 0, samples),
	number("typical_p", 0.01, 1, 0.01, 1, samples),
	number("top_h", 0.01, 1, 0.01, 1, samples),
	number("epsilon_cutoff", 0, 0.1, 0.001, 0, samples),
	number("eta_cutoff", 0, 0.1, 0.001, 0, samples),
	number("repetition_penalty", 0.5, 2, 0.05, 1, always, { dola: 1.2 }),
	number("no_repeat_ngram_size", 0, 10, 1, 0, always),
	number("frequency_penalty", -2, 2, 0.1, 0, always),
	number("presence_penalty", -2, 2, 0.1, 0, always),
	number("num_return_sequences", 1, 8, 1, 1, severalRows),
	text("stop_strings", "words"),
	text("regex", "line"),
];

export const FIELDS = new Map(LIST.map((field) => [field.name, field]));

export const standard = (field, side, file = {}) => field.presets?.[side.strategy] ?? file[field.name] ?? field.standard;

// What the page shows at first. `at` is the token whose alternatives are open; `chosen` of the ids are those of a branch.
const STATE = {
	mode: "completion", prompt: "Once upon a time", system: "", seed: 1, locked: false, compare: false, colour: "final", at: -1, chosen: 0,
	model: "", fingerprint: "",
};
const COLOURS = ["raw", "entropy", "rank"];
const SIDES = ["", "b."];

// The state as text for the address. It never holds the API key.
export function toHash(state) {
	const parts = new URLSearchParams();
	for (const [name, usual] of Object.entries(STATE)) {
		if (state[name] !== usual || name === "prompt" || name === "seed") parts.set(name, state[name] === true ? "1" : state[name]);
	}
	if (state.messages.length) parts.set("messages", JSON.stringify(state.messages));
	if (state.ids) parts.set("ids", state.ids.join("."));
	state.sides.slice(0, state.compare ? 2 : 1).forEach((side, index) => {
		parts.set(SIDES[index] + "strategy", side.strategy);
		for (const name of FIELDS.keys()) for (const part of [side.fields[name] ?? []].flat()) parts.append(SIDES[index] + name, String(part));
	});
	return parts.toString();
}

// A value by the rules of its field, or `undefined`.
export function checked(field, text) {
	const values = [text].flat();
	if (field.kind === "line") return values[0].slice(0, 1000) || undefined;
	if (field.kind === "words") return values.filter((word) => word !== "").slice(0, 16);
	if (field.kind === "check") return values[0] === "true";
	if (field.kind === "choice") return field.choices.find((choice) => String(choice) === values[0]);
	const value = Math.min(field.most, Math.max(field.least, parseFloat(values[0])));
	if (Number.isFinite(value)) return Number.isInteger(field.step) ? Math.round(value) : value;
}

function messagesOf(text) {
	const isMessage = (one) => ["user", "assistant"].includes(one?.role) && typeof one.content === "string";
	try {
		return JSON.parse(text).filter(isMessage).map(({ role, content }) => ({ role, content }));
	} catch {
		return [];
	}
}

// The state of an address. What makes no sense is left out.
export function fromHash(hash) {
	const parts = new URLSearchParams(hash.replace(/^#/, ""));
	const state = { ...STATE, ids: null, sides: [{ strategy: "greedy_search", fields: {} }, { strategy: "sample", fields: {} }] };
	for (const [name, text] of parts) {
		const kind = typeof STATE[name];
		if (kind === "boolean") state[name] = text === "1";
		else if (kind === "number" && /^\d{1,15}$/.test(text)) state[name] = Number(text);
		else if (kind === "string" && (name === "mode" ? text === "chat" : name !== "colour" || COLOURS.includes(text))) state[name] = text;
	}
	state.messages = messagesOf(parts.get("messages"));
	const ids = (parts.get("ids") ?? "").split(".").filter((id) => /^\d{1,9}$/.test(id));
	if (ids.length) state.ids = ids.map(Number);
	state.sides.forEach((side, index) => {
		const strategy = parts.get(SIDES[index] + "strategy");
		if (STRATEGIES.includes(strategy)) side.strategy = strategy;
		for (const [name, field] of FIELDS) {
			const values = parts.getAll(SIDES[index] + name);
			const value = values.length ? checked(field, values) : undefined;
			if (value !== undefined && value.length !== 0) side.fields[name] = value;
		}
	});
	return state;
}

// The fields that a side sets and its strategy uses. `tokens` has the ids of the words to hold.
export function fieldsOf(side, seed, tokens = new Map()) {
	const fields = { max_new_tokens: side.fields.max_new_tokens ?? FIELDS.get("max_new_tokens").standard };
	for (const [name, field] of FIELDS) {
		const value = side.fields[name];
		if (value === undefined || !field.used(side)) continue;
		if (name !== "force_words") fields[name] = value;
		else fields.force_words_ids = value.map((word) => tokens.get(word) ?? []);
	}
	if (samples(side)) fields.seed = seed;
	return fields;
}

// Where several models are served, `model` names one.
export function toRequest(state, side, { hasAssistant = false, model, tokens } = {}) {
	const body = model ? { model } : {};
	if (state.ids) body.prompt = state.ids;
	else if (state.mode === "chat") {
		const system = state.system ? [{ role: "system", content: state.system }] : [];
		// Without a new message the last reply is generated again.
		const said = state.prompt || !state.messages.length ? [...state.messages, { role: "user", content: state.prompt }] : state.messages.slice(0, -1);
		body.messages = [...system, ...said];
	} else body.prompt = state.prompt;
	Object.assign(body, { strategy: side.strategy }, fieldsOf(side, state.seed, tokens));
	// With an assistant, the server drafts for these, too.
	if (hasAssistant && ["greedy_search", "sample"].includes(side.strategy)) body.use_assistant = false;
	return body;
}

// Settings that show one thing each: a name, and an address. The first is the first view.
export const examples = (hasAssistant) => [
	["What does top-p cut?", "prompt=The+little+fox&seed=7&strategy=sample&max_new_tokens=40&top_p=0.6&at=8"],
	["What is a beam?", "prompt=Near+the+lake&strategy=beam_search&max_new_tokens=14&num_beams=3"],
	["Greedy or beams?", "prompt=Near+the+lake&compare=1&strategy=greedy_search&max_new_tokens=30&b.strategy=beam_search&b.max_new_tokens=30"],
	["Draft and check", "max_new_tokens=40&num_assistant_tokens_schedule=constant&" + (hasAssistant
		? "prompt=Once+upon+a+time&strategy=assisted_decoding"
		: "prompt=Leo+had+a+red+kite.+Mia+had+a+red+kite.+Tom+had&strategy=prompt_lookup")],
	["What does a grammar cut?", "prompt=The+little+fox&strategy=greedy_search&max_new_tokens=12&regex=+(was%7Chad)+%5Ba-z+%5D*&at=0"],
];
