// What can be set, and what each strategy uses of it; the state as an address and as a request. Nothing here touches the
// page.

const BEAMS = ["beam_search", "beam_sample", "group_beam_search", "constrained_beam_search"];
const DRAFTS = ["prompt_lookup", "assisted_decoding"];
const OPTIONAL = ["dola", ...DRAFTS];

export const STRATEGIES = ["greedy_search", "sample", ...BEAMS, "contrastive_search", ...OPTIONAL];

export const hasBeams = (side) => BEAMS.includes(side.strategy);

// Whether tokens are drawn, so that the seed counts.
export const samples = (side) =>
	["sample", "beam_sample"].includes(side.strategy) ||
	(OPTIONAL.includes(side.strategy) && side.fields.do_sample === true);

const always = () => true;
const isOneOf = (...names) => (side) => names.includes(side.strategy);

const number = (name, label, least, most, step, standard, used, presets = {}) =>
	({ name, label, kind: "number", least, most, step, standard, used, presets });
const choice = (name, label, choices, used) => ({ name, label, kind: "choice", choices, standard: choices[0], used });

const drafts = isOneOf(...DRAFTS);
const groups = isOneOf("group_beam_search");
const assisted = isOneOf("assisted_decoding");
const lookup = isOneOf("prompt_lookup");
const candidates = (side) => samples(side) || side.strategy === "contrastive_search";
const severalRows = (side) => hasBeams(side) || side.strategy === "sample";

// The groups of controls: name, label, range, step and default of each field. `used` tells whether a strategy uses it.
export const GROUPS = [
	["Length", [
		number("max_new_tokens", "New tokens", 1, 4096, 1, 40, always),
		{ name: "stop_strings", label: "Stop at (one a line)", kind: "words", used: always },
	]],
	["Sampling", [
		{ name: "do_sample", label: "Sample", kind: "check", standard: false, used: isOneOf(...OPTIONAL) },
		number("temperature", "Temperature", 0.05, 3, 0.05, 1, samples),
		number("top_k", "Top-k", 0, 200, 1, 50, candidates, { contrastive_search: 4 }),
		number("top_p", "Top-p", 0, 1, 0.01, 1, samples),
		number("min_p", "Min-p", 0, 1, 0.01, 0, samples),
		number("typical_p", "Typical-p", 0.01, 1, 0.01, 1, samples),
		number("top_h", "Top-h", 0.01, 1, 0.01, 1, samples),
		number("epsilon_cutoff", "Epsilon cut", 0, 0.1, 0.001, 0, samples),
		number("eta_cutoff", "Eta cut", 0, 0.1, 0.001, 0, samples),
	]],
	["Beams", [
		number("num_beams", "Beams", 2, 16, 1, 4, hasBeams),
		number("length_penalty", "Length penalty", -2, 4, 0.1, 1, hasBeams),
		choice("early_stopping", "Stop early", [false, true, "never"], hasBeams),
		number("num_beam_groups", "Groups", 2, 8, 1, 2, groups),
		number("diversity_penalty", "Diversity", 0, 5, 0.1, 1, groups),
		{ name: "force_words", label: "Words to hold (one a line)", kind: "words", used: isOneOf("constrained_beam_search") },
	]],
	["Results", [number("num_return_sequences", "Results", 1, 8, 1, 1, severalRows)]],
	["Penalties", [
		number("repetition_penalty", "Repetition", 0.5, 2, 0.05, 1, always, { dola: 1.2 }),
		number("no_repeat_ngram_size", "No repeat of", 0, 10, 1, 0, always),
		number("frequency_penalty", "Frequency", -2, 2, 0.1, 0, always),
		number("presence_penalty", "Presence", -2, 2, 0.1, 0, always),
	]],
	["Contrast", [
		number("penalty_alpha", "Alpha", 0, 1, 0.05, 0.6, isOneOf("contrastive_search")),
		choice("dola_layers", "DoLa layers", ["high", "low"], isOneOf("dola")),
	]],
	["Drafts", [
		number("num_assistant_tokens", "Draft tokens", 1, 32, 1, 20, assisted),
		number("assistant_confidence_threshold", "Draft while above", 0, 1, 0.05, 0.4, assisted),
		number("prompt_lookup_num_tokens", "Looked-up tokens", 1, 32, 1, 10, lookup),
		number("max_matching_ngram_size", "Longest match", 1, 10, 1, 2, lookup),
		choice("num_assistant_tokens_schedule", "Draft length", ["adaptive", "constant", "heuristic"], drafts),
	]],
];

export const FIELDS = new Map(GROUPS.flatMap(([, fields]) => fields).map((field) => [field.name, field]));

// What holds while a field is not set.
export const standard = (field, side, file = {}) => field.presets?.[side.strategy] ?? file[field.name] ?? field.standard;

// What the page shows at first. A side has a strategy, and the fields that are set.
export const initial = () => ({
	mode: "completion", prompt: "Once upon a time", system: "", messages: [], ids: null, seed: 1, locked: false, compare: false,
	colour: "final", sides: [{ strategy: "greedy_search", fields: {} }, { strategy: "sample", fields: {} }],
});

const SIDES = ["", "b."];

// The state as text for the address. It never holds the API key.
export function toHash(state) {
	const parts = new URLSearchParams();
	if (state.mode === "chat") {
		parts.set("mode", "chat");
		if (state.system) parts.set("system", state.system);
		if (state.messages.length) parts.set("messages", JSON.stringify(state.messages));
	}
	parts.set("prompt", state.prompt);
	if (state.ids) parts.set("ids", state.ids.join("."));
	parts.set("seed", String(state.seed));
	for (const name of ["locked", "compare"]) if (state[name]) parts.set(name, "1");
	if (state.colour !== "final") parts.set("colour", state.colour);
	state.sides.forEach((side, index) => {
		if (index === 1 && !state.compare) return;
		parts.set(SIDES[index] + "strategy", side.strategy);
		for (const name of FIELDS.keys()) {
			const value = side.fields[name];
			if (value === undefined) continue;
			for (const part of [value].flat()) parts.append(SIDES[index] + name, String(part));
		}
	});
	return parts.toString();
}

// A field's value by the rules of the field, or `undefined`: in its range, and whole if it counts something.
export function checked(field, text) {
	const values = [text].flat();
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
	const state = initial();
	const get = (name) => parts.get(name) ?? "";
	if (get("mode") === "chat") state.mode = "chat";
	state.prompt = parts.get("prompt") ?? state.prompt;
	state.system = get("system");
	state.messages = messagesOf(get("messages"));
	const ids = get("ids").split(".").filter((id) => /^\d{1,9}$/.test(id));
	if (ids.length) state.ids = ids.map(Number);
	if (/^\d{1,15}$/.test(get("seed"))) state.seed = Number(get("seed"));
	for (const name of ["locked", "compare"]) state[name] = get(name) === "1";
	if (["raw", "entropy", "rank"].includes(get("colour"))) state.colour = get("colour");
	state.sides.forEach((side, index) => {
		const strategy = get(SIDES[index] + "strategy");
		if (STRATEGIES.includes(strategy)) side.strategy = strategy;
		for (const [name, field] of FIELDS) {
			const values = parts.getAll(SIDES[index] + name);
			const value = values.length ? checked(field, values) : undefined;
			if (value !== undefined && value.length !== 0) side.fields[name] = value;
		}
	});
	return state;
}

// The fields of a request that a side sets: those that its strategy uses. `tokens` has the ids of the words to hold.
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

export function toRequest(state, side, { hasAssistant = false, tokens } = {}) {
	const body = {};
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

// Settings that show one thing each: a name, and an address.
export const EXAMPLES = [
	["What is a beam?", "prompt=Near+the+lake&seed=1&strategy=beam_search&max_new_tokens=14&num_beams=3"],
	["Greedy or beams?", "prompt=Near+the+lake&seed=1&compare=1&strategy=greedy_search&max_new_tokens=30&b.strategy=beam_search&b.max_new_tokens=30"],
	["What does top-p cut?", "prompt=The+little+fox&seed=7&locked=1&strategy=sample&max_new_tokens=40&top_p=0.6"],
	["Draft and check", "prompt=Leo+had+a+red+kite.+Mia+had+a+red+kite.+Tom+had&seed=1&strategy=prompt_lookup&max_new_tokens=40&num_assistant_tokens_schedule=constant"],
];
