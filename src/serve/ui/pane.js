// The result of a run or of a trace, as its events come.

import { Drafts } from "./drafts.js";
import { Heat } from "./heat.js";
import { count, eachFrame, element, number, visible, words } from "./text.js";
import { Tree } from "./tree.js";

const BUDGET_MS = 10;

const KINDS = ["start", "prompt", "token", "draft", "beam", "finish"];
const must = (holds, why) => {
	if (!holds) throw new Error(why);
};

const TEXTS = ["type", "text", "texts", "source", "state", "cut_by", "finish_reason"];

// Refuses events of a file in which a field has the wrong type.
function check(value, name) {
	if (Array.isArray(value)) value.forEach((one) => check(one ?? "nothing", name));
	else if (typeof value === "object" && value !== null) Object.entries(value).forEach(([field, one]) => check(one, field));
	else must((value ?? null) === null || typeof value === (TEXTS.includes(name) ? "string" : "number"), "an event has a wrong `" + name + "`");
}

export class Pane {
	// `branch` gets the ids of another prompt, `measure` runs without drafts, `tell` reads out.
	constructor(root, { branch, measure, tell }) {
		Object.assign(this, { root, branch, measure, tell });
		this.redraw = eachFrame(() => this.work());
		this.clear();
	}

	clear(label = "") {
		Object.assign(this, { events: [], next: 0, first: null, isTrace: false, body: null });
		for (const name of ["prompts", "trees", "drafts", "paths"]) this[name] = new Map();
		this.title = element("h3", label);
		this.status = element("p.status");
		this.heat = new Heat({
			alternatives: (token) => this.alternatives(token),
			branch: (token, one) => this.branchAt(token, one),
		});
		this.heat.colour = this.colour ?? "final";
		this.pictures = element("div");
		this.root.replaceChildren(element("header", this.title, this.status), this.heat.root, this.pictures);
		this.root.removeAttribute("data-state");
	}

	setColour(colour) {
		this.colour = colour;
		this.heat.setColour(colour);
	}

	// Takes an event, which a later frame draws.
	feed(event) {
		this.events.push(event);
		this.redraw();
	}

	async drawn() {
		const soon = (resolve) => setTimeout(resolve, 8);
		while ([this, ...this.trees.values()].some(({ redraw }) => redraw.waits)) await new Promise(soon);
	}

	work() {
		const end = performance.now() + BUDGET_MS;
		while (this.next < this.events.length && performance.now() < end) {
			try {
				this.take(this.events[this.next++]);
			} catch (error) {
				this.next = this.events.length;
				this.fail("This is no trace of rsgen: " + error.message);
			}
		}
		this.heat.flush();
		for (const drafts of this.drafts.values()) drafts.flush();
		if (this.next < this.events.length) this.redraw();
	}

	// Draws an event. That of a file may be anything.
	take(event) {
		if (!KINDS.includes(event?.type)) return;
		if (this.isTrace && event.type !== "start") check(event, "event");
		this[event.type](event);
	}

	start({ strategy, seed }) {
		const name = this.title.textContent || "Result";
		this.title.textContent = name + ": " + visible(words(strategy)) + ((seed ?? null) === null ? "" : ", seed " + seed);
	}

	prompt({ prompt, ids }) {
		this.prompts.set(prompt, ids);
	}

	token(token) {
		must(token.pos === (this.heat.rows.get(token.row)?.tokens ?? []).length, "a token is missing");
		this.heat.add(token);
		this.clock(token);
	}

	draft(event) {
		must(event.accepted <= event.proposed.length, "more tokens were accepted than proposed");
		const measure = this.isTrace ? null : () => this.measure(this);
		this.picture(this.drafts, event.row, "Drafts", () => new Drafts(measure)).add(event);
	}

	picture(map, index, name, make) {
		if (!map.has(index)) {
			const made = make();
			map.set(index, made);
			const title = name + (index ? " " + (index + 1) : "");
			this.pictures.append(element("section", element("h4", title), made.root));
		}
		return map.get(index);
	}

	beam(event) {
		const tree = this.picture(this.trees, event.prompt, "Beams", () =>
			new Tree((node) => this.branch([...this.promptOf(event.prompt), ...tree.idsOf(node.n)])));
		const { step, nodes, frontier } = event;
		const follows = (node) => !tree.nodes.has(node.n) && (node.parent === null ? -1 : tree.nodes.get(node.parent)?.step) === step - 1;
		must(step === tree.columns.length && nodes.every(follows) && frontier.every((n) => nodes.some((node) => node.n === n)), "a step of the beams does not follow the one before it");
		tree.add(event);
		this.say(count(step + 1, "step"));
	}

	// The times of the first tokens and of the last, which the pace is made of.
	clock({ t_us: time, row }) {
		if (this.first === null) this.first = { time, tokens: 0, all: 0 };
		if (time === this.first.time) this.first.tokens += 1;
		this.first.all += 1;
		this.first.last = time;
		if (row === 0) this.say(count(this.first.all, "token"));
	}

	// Seconds for each token, the first ones left out: they take the time of the prompt.
	get pace() {
		const { time, last, all, tokens } = this.first ?? {};
		return all > tokens ? (last - time) / 1e6 / (all - tokens) : 0;
	}

	finish(event) {
		for (const [prompt, tree] of this.trees) {
			const rows = event.rows.filter((row) => row.prompt === prompt);
			if (rows.length && rows.every((row) => row.path.every((n) => tree.nodes.has(n)))) tree.finish(rows);
		}
		for (const row of event.rows) {
			this.paths.set(row.row, row);
			this.heat.finish(row);
		}
		for (const drafts of this.drafts.values()) drafts.finish(this.pace);
		const total = count(this.first?.all ?? 0, "token") + " in " + number(event.timings.total) + " s";
		this.end("done", total + (this.pace > 0 ? " · " + Math.round(1 / this.pace) + " tokens/s" : ""));
		this.tell("Finished: " + total + ". " + this.text);
	}

	get text() {
		return (this.heat.rows.get(0)?.tokens ?? []).map((token) => token.text).join("");
	}

	say(text) {
		this.status.textContent = text;
	}

	end(state, text) {
		this.root.dataset.state = state;
		this.say(text);
	}

	fail(message) {
		this.heat.flush();
		this.end("failed", "✖ " + visible(message));
		this.tell(message);
	}

	promptOf(prompt) {
		return this.prompts.get(prompt) ?? [];
	}

	alternatives(token) {
		if (token.top.length) return { list: token.top, hasFinal: true, note: "Choose a token to go on from there." };
		const { prompt = 0, path = [] } = this.paths.get(token.row) ?? {};
		const nodes = this.trees.get(prompt)?.siblings(path[token.pos]) ?? [];
		const list = nodes.map((node) => ({ id: node.id, text: node.text, p_raw: Math.exp(node.logprob) }));
		return { list, hasFinal: false, note: "The continuations of this beam. Choose one to go on from there." };
	}

	branchAt(token, one) {
		const before = this.heat.rows.get(token.row).tokens.slice(0, token.pos).map((earlier) => earlier.id);
		this.branch([...this.promptOf(this.paths.get(token.row)?.prompt ?? 0), ...before, one.id]);
	}
}

// The place of the first token at which two panes differ; `null` if there is none.
export function difference(a, b) {
	const [one, other] = [a, b].map((pane) => pane.heat.rows.get(0)?.tokens ?? []);
	for (let pos = 0; pos < Math.max(one.length, other.length); pos++) if (one[pos]?.id !== other[pos]?.id) return pos;
	return null;
}
